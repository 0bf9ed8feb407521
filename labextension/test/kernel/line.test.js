import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { Line } from '../../lib/kernel/line.js';

/** A kernel without subshells that is busy: it opens comms one by one, when it comes to them. */
class BusyKernel {
  iopubMessage = new Signal(this);
  info = Promise.resolve({});
  clientId = 'client';
  username = '';
  isDisposed = false;
  waiting = [];
  heard = [];

  createComm() {
    const commId = String(this.waiting.length);
    return { commId, isDisposed: false, open: hello => this.waiting.push([commId, hello.inbox]) };
  }

  sendControlMessage({ content }) {
    this.heard.push([content.comm_id, content.data.type]);
  }

  letIn(number) {
    const [comm, inbox] = this.waiting[number];
    const content = { comm_id: inbox, data: { type: 'welcome', comm } };
    this.iopubMessage.emit({ header: { msg_type: 'comm_msg' }, content });
  }
}

test('a page that knocked more than once speaks on the comm that was let in last', async () => {
  const kernel = new BusyKernel();
  const line = new Line(kernel, () => ({}));
  await line.begin();
  line.knock();
  for (const number of [0, 1]) {
    kernel.letIn(number);
    await new Promise(setImmediate);
    assert.ok(line.send({ type: 'question' }));
  }
  assert.deepEqual(kernel.heard, [
    ['0', 'ping'],
    ['0', 'question'],
    ['1', 'ping'],
    ['1', 'question']
  ]);
});

test('nothing is sent to a kernel that has ended, which JupyterLab would throw at', async () => {
  const kernel = new BusyKernel();
  const line = new Line(kernel, () => ({}));
  await line.begin();
  kernel.letIn(0);
  await new Promise(setImmediate);
  kernel.status = 'dead';
  kernel.sendControlMessage = kernel.createComm = () => assert.fail('Kernel is dead');
  assert.equal(line.send({ type: 'ask' }), false);
  line.dispose();
  await new Line(kernel, () => ({})).begin();
  assert.deepEqual(kernel.heard, [['0', 'ping']]);
});

test('what a kernel still says while it ends is not heard; the next one is', async () => {
  const kernel = new BusyKernel();
  const line = new Line(kernel, () => ({}));
  const heard = [];
  line.heard.connect((_, { type }) => heard.push(type));
  await line.begin();
  kernel.letIn(0);
  await new Promise(setImmediate);
  line.forget();
  const content = { comm_id: kernel.waiting[0][1], data: { type: 'foot' } };
  kernel.iopubMessage.emit({ header: { msg_type: 'comm_msg' }, content });
  line.knock();
  kernel.letIn(1);
  await new Promise(setImmediate);
  assert.deepEqual(heard, ['welcome', 'welcome']);
});

test('a kernel that ends while it opens a subshell lets nobody in', async () => {
  const kernel = new BusyKernel();
  kernel.supportsSubshells = true;
  let started;
  const { createComm } = kernel;
  kernel.createComm = (...given) =>
    Object.assign(createComm.apply(kernel, given), {
      subshellStarted: new Promise(resolve => (started = resolve))
    });
  const line = new Line(kernel, () => ({}));
  const heard = [];
  line.heard.connect((_, { type }) => heard.push(type));
  await line.begin();
  kernel.letIn(0);
  line.forget();
  started();
  await new Promise(setImmediate);
  assert.deepEqual(heard, []);
});

test('on a comm that was never opened nothing is sent but by the control channel', async () => {
  const kernel = new BusyKernel();
  kernel.info = Promise.reject(new Error('busy'));
  const send = () => assert.fail('No such comm');
  kernel.createComm = () => ({ commId: 'late', isDisposed: false, subshellId: 'shell', send });
  const line = new Line(kernel, () => ({}));
  let inbox;
  const { sendControlMessage } = kernel;
  kernel.sendControlMessage = message => {
    inbox ??= message.content.data.inbox;
    sendControlMessage.call(kernel, message);
  };
  await line.begin();
  const content = { comm_id: inbox, data: { type: 'welcome', comm: 'late' } };
  kernel.iopubMessage.emit({ header: { msg_type: 'comm_msg' }, content });
  await new Promise(setImmediate);
  line.send({ type: 'watch' });
  assert.deepEqual(kernel.heard, ['knock', 'ping', 'watch'].map(type => ['late', type]));
});

test('a page that goes before it is let in says so behind its knock', async () => {
  for (const info of [Promise.resolve({}), Promise.reject(new Error('busy'))]) {
    const kernel = new BusyKernel();
    kernel.info = info;
    const closed = [];
    const { createComm } = kernel;
    kernel.createComm = (...given) => {
      const comm = createComm.apply(kernel, given);
      return Object.assign(comm, { close: () => closed.push(comm.commId) });
    };
    const line = new Line(kernel, () => ({}));
    await line.begin();
    line.dispose();
    const isKnown = kernel.waiting.length > 0;
    assert.deepEqual(closed, isKnown ? ['0'] : []);
    assert.deepEqual(kernel.heard, isKnown ? [] : ['knock', 'bye'].map(type => ['0', type]));
  }
});

test('of a link that was loaded anew the old comm says nothing any more', async () => {
  const kernel = new BusyKernel();
  const line = new Line(kernel, () => ({}));
  const heard = [];
  line.heard.connect((_, { type }) => heard.push(type));
  await line.begin();
  kernel.letIn(0);
  await new Promise(setImmediate);
  const content = { comm_id: kernel.waiting[0][1], data: { type: 'goodbye' } };
  kernel.iopubMessage.emit({ header: { msg_type: 'comm_msg' }, content });
  kernel.iopubMessage.emit({ header: { msg_type: 'comm_close' }, content: { comm_id: '0' } });
  kernel.letIn(1);
  await new Promise(setImmediate);
  assert.deepEqual(heard, ['welcome', 'goodbye', 'welcome']);
});
