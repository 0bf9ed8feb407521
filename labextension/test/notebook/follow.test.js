import assert from 'node:assert/strict';
import { test } from 'node:test';

/** An element that is in sight, as far as a cell is followed. */
const element = () => ({
  append() {},
  setAttribute() {},
  addEventListener() {},
  removeEventListener() {},
  remove() {},
  classList: { add() {} },
  getBoundingClientRect: () => ({ top: 0, bottom: 100 }),
  parentElement: null
});
const observed = new Set();
globalThis.ResizeObserver = class {
  observe(node) {
    observed.add(node);
  }

  disconnect() {
    observed.clear();
  }
};
globalThis.document = { createElement: element, documentElement: element() };
const { Follow } = await import('../../lib/notebook/follow.js');

test('a cell that is run again at once is followed on, though its first run has just ended', t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const cell = { model: { id: 'cell' }, node: element() };
  const follow = new Follow({ node: element(), content: { widgets: [cell] } });
  follow.begin('cell');
  follow.end('cell');
  follow.begin('cell');
  t.mock.timers.tick(5_000);
  assert.equal(observed.size, 1);
  follow.end('cell');
  t.mock.timers.tick(5_000);
  assert.equal(observed.size, 0);
});
