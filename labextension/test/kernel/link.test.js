import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { PageTools } from '../../lib/kernel/api.js';
import { Around } from '../../lib/kernel/around.js';
import { Link } from '../../lib/kernel/link.js';
import { Work } from '../../lib/kernel/work.js';

/** Elements and observers, as far as a link makes some before anything is drawn. */
const element = () => ({
  append() {},
  setAttribute() {},
  addEventListener() {},
  remove() {},
  querySelectorAll: () => [],
  classList: new Set()
});
const classes = () => Object.assign(new Set(), { remove: name => linked.classList.delete(name) });
const linked = element();
globalThis.document = { createElement: element };
globalThis.ResizeObserver = class {
  disconnect() {}
};

/** A signal that can be asked who listens. */
class Counted extends Set {
  connect(slot) {
    this.add(slot);
  }

  disconnect(slot) {
    this.delete(slot);
  }
}

/** A notebook with one agent's cell, a kernel that lets its page in, and the link between them. */
async function connect(t) {
  const heard = { iopub: null };
  const kernel = {
    id: 'k',
    clientId: 'client',
    username: '',
    status: 'idle',
    isDisposed: false,
    handleComms: true,
    info: Promise.resolve({}),
    anyMessage: new Counted(),
    statusChanged: new Counted(),
    createComm: () => ({
      commId: 'comm',
      isDisposed: false,
      close() {},
      open: ({ inbox }) => (heard.inbox = inbox)
    }),
    sendControlMessage() {}
  };
  kernel.iopubMessage = new Signal(kernel);
  const cells = [{ id: 'cell', cell_type: 'code', getSource: () => '%%agent\nGo.' }];
  const model = {
    sharedModel: { cells },
    cells: Object.assign([], { changed: new Counted() })
  };
  linked.classList = classes();
  const panel = {
    id: 'p',
    node: linked,
    isDisposed: false,
    content: { widgets: [] },
    context: {
      path: 'a.ipynb',
      isDisposed: false,
      ready: Promise.resolve(),
      saveState: new Counted(),
      model
    }
  };
  const [work, around] = [new Work(), new Around()];
  const link = new Link(panel, kernel, new PageTools(), work, around, () => ({}));
  t.after(() => {
    t.mock.timers.reset();
    link.dispose(); // else it waits for answers, and node for it
  });
  await new Promise(setImmediate);
  const say = async data => {
    const message = { header: { msg_type: 'comm_msg' }, parent_header: {} };
    kernel.iopubMessage.emit({ ...message, content: { comm_id: heard.inbox, data } });
    await new Promise(setImmediate);
  };
  await say({ type: 'welcome', comm: 'comm' });
  return { around, kernel, link, panel, say, work };
}

test('with the extension in the kernel its agents go from the page', async t => {
  const { around, panel, say, work } = await connect(t);
  await say({ type: 'helper', cell: 'cell', agent: 'a', doing: 'explore-1: looks', elapsed: 5 });
  assert.deepEqual([work.runs.length, around.places.length, panel.node.classList.size], [1, 1, 1]);
  await say({ type: 'goodbye' });
  assert.deepEqual([work.runs.length, around.places.length, panel.node.classList.size], [0, 0, 0]);
});

test('a view that is closed asks no more, nor listens to its notebook, which another view shows', async t => {
  const { kernel, link, panel } = await connect(t);
  const { model, saveState } = panel.context;
  const listeners = [model.cells.changed, saveState, kernel.anyMessage, kernel.statusChanged];
  assert.deepEqual(listeners.map(({ size }) => size), [1, 1, 1, 1]);
  const answer = link.ask('complete', {});
  panel.isDisposed = true;
  link.dispose();
  assert.equal(await Promise.race([answer, new Promise(resolve => setImmediate(resolve, 'late'))]), null);
  assert.deepEqual(listeners.map(({ size }) => size), [0, 0, 0, 0]);
});

test('after cells have changed the kernel is asked for marks: a moved one is drawn anew, without its own', async t => {
  const { kernel, link, panel } = await connect(t);
  const asked = [];
  kernel.sendControlMessage = ({ content }) => asked.push(content.data.about);
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const [onCells] = panel.context.model.cells.changed;
  onCells.call(link);
  onCells.call(link);
  assert.deepEqual(asked, []);
  t.mock.timers.tick(1_000);
  assert.deepEqual(asked, ['cells']);
});
