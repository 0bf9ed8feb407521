import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { Around } from '../../lib/kernel/around.js';
import { Elsewhere } from '../../lib/kernel/elsewhere.js';

/** A connection to a kernel with agent_magics, as far as a line needs one. */
class Kernel {
  iopubMessage = new Signal(this);
  statusChanged = new Signal(this);
  info = Promise.resolve({});
  clientId = 'client';
  username = '';
  isDisposed = false;

  constructor(id, handleComms) {
    this.id = id;
    this.handleComms = handleComms;
  }

  createComm() {
    assert.ok(this.handleComms, 'Comms are disabled on this kernel connection');
  }

  sendControlMessage({ content }) {
    if (content.data.type === 'knock') {
      this._welcome(content.comm_id, content.data);
    }
  }

  dispose() {
    this.isDisposed = true;
  }

  _welcome(comm, { inbox }) {
    const data = { type: 'welcome', comm };
    const message = { header: { msg_type: 'comm_msg' }, content: { comm_id: inbox, data } };
    this.iopubMessage.emit(message);
  }
}

/** What a page with one running notebook that it does not show looks like, and its kernel. */
async function look() {
  const open = new Set();
  const kernels = [];
  const running = [{ type: 'notebook', path: 'a.ipynb', kernel: { id: 'k' } }];
  const sessions = { running: () => running, runningChanged: new Signal({}) };
  const contents = { get: async () => ({ content: { cells: [{ source: '%%agent\nHi.' }] } }) };
  // As JupyterLab has it: what a page connects first has the comms, if it does not do without them.
  const connectTo = ({ model, handleComms }) => {
    const isTaken = kernels.some(each => each.id === model.id && each.handleComms);
    kernels.push(new Kernel(model.id, handleComms ?? !isTaken));
    return kernels.at(-1);
  };
  const around = new Around();
  const elsewhere = new Elsewhere(
    { sessions, contents, kernels: { connectTo } },
    around,
    id => open.has(id)
  );
  const added = new Promise(resolve => around.changed.connect(resolve));
  elsewhere.look(true);
  await added;
  return { around, connectTo, contents, elsewhere, kernels, open };
}

test('a notebook that this page opens is not looked at twice', async () => {
  const { around, kernels, open } = await look();
  open.add('k');
  around.add({ line: { send: () => {} }, path: 'a.ipynb', panel: {} });
  assert.equal(around.places.length, 1);
  assert.ok(kernels[0].isDisposed);
});

test('what a kernel told goes when it restarts, until somebody looks again', async () => {
  const { around, elsewhere, kernels } = await look();
  kernels[0].statusChanged.emit('restarting');
  assert.deepEqual([around.places.length, kernels.length], [0, 1]);
  const added = new Promise(resolve => around.changed.connect(resolve));
  elsewhere.look(true);
  await added;
  assert.deepEqual([around.places.length, kernels.length], [1, 2]);
});

test('who looks away and back while a file is read is connected once, and not to what was opened', async () => {
  for (const isOpened of [false, true]) {
    const { around, contents, elsewhere, kernels, open } = await look();
    elsewhere.look(false);
    const answers = [];
    contents.get = () => new Promise(resolve => answers.push(resolve));
    elsewhere.look(true);
    elsewhere.look(false);
    elsewhere.look(true);
    if (isOpened) {
      open.add('k');
    }
    answers.forEach(answer => answer({ content: { cells: [{ source: '%agent' }] } }));
    await new Promise(setImmediate);
    assert.deepEqual([around.places.length, kernels.length], isOpened ? [0, 1] : [1, 2]);
  }
});

test('the comms of a kernel stay for the notebook that is opened later', async () => {
  const { connectTo } = await look();
  assert.ok(connectTo({ model: { id: 'k' } }).handleComms);
});
