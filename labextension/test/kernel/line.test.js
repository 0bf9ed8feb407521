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
  handleComms = true;
  waiting = [];
  heard = [];

  createComm() {
    const commId = String(this.waiting.length);
    return { commId, isDisposed: false, open: hello => this.waiting.push([commId, hello.inbox]) };
  }

  sendControlMessage({ content: { comm_id, data } }) {
    this.heard.push([comm_id, data.type]);
    if (data.type === 'knock') {
      this.waiting.push([comm_id, data.inbox]);
    }
  }

  letIn(number) {
    this.say(number, { type: 'welcome', comm: this.waiting[number][0] });
  }

  say(number, data) {
    const content = { comm_id: this.waiting[number][1], data };
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

test('a kernel that ends while it opens a subshell lets nobody in', async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
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
  const begun = line.begin();
  await new Promise(setImmediate);
  t.mock.timers.tick(5_000); // it knocks though none has started yet
  await begun;
  kernel.letIn(0);
  line.forget();
  started();
  await new Promise(setImmediate);
  assert.deepEqual(heard, []);
});

test('to a busy kernel all is said on the control channel, which knows no comm', async () => {
  const kernel = new BusyKernel();
  kernel.info = Promise.reject(new Error('busy'));
  kernel.createComm = () => assert.fail('it is not opened');
  const line = new Line(kernel, () => ({}));
  await line.begin();
  const [id] = kernel.heard[0];
  kernel.letIn(0);
  await new Promise(setImmediate);
  line.send({ type: 'watch' });
  assert.deepEqual(kernel.heard, ['knock', 'ping', 'watch'].map(type => [id, type]));
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
    const isOpened = kernel.heard.length === 0;
    const [[id]] = kernel.waiting;
    assert.deepEqual(closed, isOpened ? [id] : []);
    assert.deepEqual(kernel.heard, isOpened ? [] : ['knock', 'bye'].map(type => [id, type]));
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

test('a page that the kernel took for gone comes again, whatever the kernel does, and is heard', async t => {
  const kernel = new BusyKernel();
  const line = new Line(kernel, () => ({ path: 'a.ipynb' }));
  const heard = [];
  line.heard.connect((_, { type }) => heard.push(type));
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  await line.begin();
  kernel.letIn(0);
  await new Promise(setImmediate);
  now = 60_000;
  kernel.say(0, { type: 'goodbye', again: true });
  assert.equal(line.send({ type: 'stop' }), false);
  kernel.letIn(1);
  await new Promise(setImmediate);
  assert.ok(line.send({ type: 'stop' }));
  assert.deepEqual(kernel.heard.map(([, type]) => type), ['ping', 'knock', 'ping', 'stop']);
  assert.deepEqual(heard, ['welcome', 'goodbye', 'welcome']);

  // A kernel that has too many pages sends it away at once, and it stays there until it has a reason.
  kernel.say(0, { type: 'goodbye', again: true });
  assert.equal(kernel.waiting.length, 2);
  line.knock();
  assert.equal(kernel.waiting.length, 3);
});

test('a connection without comms, which another one of the page has, does all by the control channel', async () => {
  const kernel = new BusyKernel();
  kernel.handleComms = false;
  kernel.createComm = () => assert.fail('Comms are disabled on this kernel connection');
  let done = null;
  kernel.requestKernelInfo = () => new Promise(resolve => (done = resolve));
  const line = new Line(kernel, () => ({}));
  const heard = [];
  line.heard.connect((_, { type }) => heard.push(type));
  await line.begin();
  kernel.letIn(0);
  await new Promise(setImmediate);
  assert.ok(line.send({ type: 'stop' }));

  // agent_magics is loaded anew: the control channel must wait for the cell that does so.
  kernel.say(0, { type: 'goodbye' });
  await new Promise(setImmediate);
  assert.equal(kernel.waiting.length, 1);
  done();
  await new Promise(setImmediate);
  kernel.letIn(1);
  await new Promise(setImmediate);
  line.dispose();
  const [[first], [second]] = kernel.waiting;
  assert.deepEqual(kernel.heard, [
    ...['knock', 'ping', 'stop'].map(type => [first, type]),
    ...['knock', 'ping', 'bye'].map(type => [second, type])
  ]);
  assert.deepEqual(heard, ['welcome', 'goodbye', 'welcome']);
});

test('where the kernel ends before a connection without comms could knock, nothing fails', async () => {
  const kernel = new BusyKernel();
  kernel.handleComms = false;
  kernel.requestKernelInfo = () => Promise.reject(new Error('Canceled future'));
  new Line(kernel, () => ({})).knock();
  await new Promise(setImmediate);
  assert.deepEqual(kernel.heard, []);
});
