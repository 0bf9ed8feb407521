import assert from 'node:assert/strict';
import { test } from 'node:test';

/** An element that is in sight, as far as a cell is followed. */
const element = () => ({
  append() {},
  setAttribute() {},
  addEventListener(type, hear) {
    this[`on${type}`] = hear;
  },
  removeEventListener() {},
  remove() {},
  classList: { add() {} },
  querySelector: () => null,
  getBoundingClientRect: () => ({ top: 0, bottom: 100 }),
  parentElement: null
});
const observed = new Set();
let resize;
globalThis.ResizeObserver = class {
  constructor(hear) {
    resize = hear;
  }

  observe(node) {
    observed.add(node);
  }

  disconnect() {
    observed.clear();
  }
};
const page = element();
globalThis.document = { createElement: element, documentElement: page };
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

/** Two cells of 3,000 pixels below each other on a page of 500, which the reader can scroll. */
function twoCells() {
  page.scrollTop = 0;
  const cells = [0, 3_000].map((top, index) => {
    const node = element();
    const place = () => ({ top: top - page.scrollTop, bottom: top + 3_000 - page.scrollTop });
    node.getBoundingClientRect = place;
    return { model: { id: 'ab'[index] }, node };
  });
  page.getBoundingClientRect = () => ({ top: 0, bottom: 500 });
  return new Follow({ node: element(), content: { widgets: cells } });
}

/** The kernel tells of cells at work, and what is observed anew is told once. */
function tell(follow, ...cells) {
  for (const cell of cells) {
    observed.clear();
    follow.begin(cell);
    if (observed.size > 0) {
      resize();
    }
  }
}

test('who scrolls up while two agents are at work is left there', () => {
  const follow = twoCells();
  tell(follow, 'b', 'a');
  assert.equal(page.scrollTop, 2_500);
  page.onwheel({ type: 'wheel' });
  page.scrollTop = 1_000;
  page.onscroll();
  tell(follow, 'b', 'a', 'b', 'a');
  assert.equal(page.scrollTop, 1_000);
  // What ends and begins again is followed: the reader has run it just now.
  follow.end('a');
  tell(follow, 'b', 'a');
  assert.equal(page.scrollTop, 2_500);
  follow.dispose();
  tell(follow, 'b');
  assert.equal(observed.size, 1);
});

test('a cell that grows before the page tells of a scroll is followed on', () => {
  page.scrollTop = 0;
  let height = 1_000;
  const cell = { model: { id: 'a' }, node: element() };
  cell.node.getBoundingClientRect = () => ({ top: 0, bottom: height - page.scrollTop });
  const follow = new Follow({ node: element(), content: { widgets: [cell] } });
  tell(follow, 'a');
  page.onkeydown({ type: 'keydown' }); // of another cell that is run
  height = 1_300;
  page.onscroll();
  resize();
  assert.equal(page.scrollTop, 800);
  follow.dispose();
});

test('a followed cell stays in sight where one above it grows', () => {
  const cell = { model: { id: 'a' }, node: element() };
  const all = (cell.node.parentElement = element());
  globalThis.getComputedStyle = () => ({ overflowY: 'auto' });
  const follow = new Follow({ node: element(), content: { widgets: [cell] } });
  follow.begin('a');
  assert.deepEqual([...observed], [cell.node, all]);
  follow.dispose();
});

test('a followed cell that is moved is followed on, as far as its reader wants', () => {
  for (const scrolls of [false, true]) {
    page.scrollTop = 0;
    const cell = { model: { id: 'a' }, node: element() };
    const follow = new Follow({ node: element(), content: { widgets: [cell] } });
    cell.node.getBoundingClientRect = () => ({ top: 0, bottom: 3_000 - page.scrollTop });
    tell(follow, 'a');
    if (scrolls) {
      page.onwheel({ type: 'wheel' });
      page.scrollTop = 0;
      page.onscroll();
    }
    cell.node = Object.assign(element(), { getBoundingClientRect: cell.node.getBoundingClientRect });
    page.scrollTop = 0;
    tell(follow, 'a');
    assert.deepEqual([...observed], [cell.node]);
    assert.equal(page.scrollTop, scrolls ? 0 : 2_500);
  }
});
