import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Around } from '../lib/around.js';

const overview = extra => ({
  agents: [],
  questions: [],
  helpers: [],
  conversations: [],
  more: 0,
  today: 0,
  ...extra
});

function place(path) {
  const said = [];
  return { place: { line: { send: data => said.push(data) }, path, panel: null }, said };
}

test('conversations that kernels have in common are shown once, pinned ones first', () => {
  const around = new Around();
  const [a, b] = [place('a.ipynb').place, place('b.ipynb').place];
  around.add(a);
  around.add(b);
  const old = { id: 'old', ended: 1, pinned: true };
  const recent = { id: 'new', ended: 2, pinned: false };
  around.show(a.line, overview({ conversations: [recent, old], more: 3, today: 0.5 }));
  around.show(b.line, overview({ conversations: [recent], more: 3, today: 0.5 }));
  assert.deepEqual(around.conversations.map(({ id }) => id), ['old', 'new']);
  assert.deepEqual([around.more, around.today], [3, 0.5]);
});

test('kernels tell only while somebody looks, and what one told goes with it', () => {
  const around = new Around();
  const { place: a, said } = place('a.ipynb');
  around.add(a);
  assert.deepEqual(said, []);
  around.watch('words');
  around.show(a.line, overview({ agents: [{ name: 'default' }] }));
  assert.equal(around.agents[0].place.path, 'a.ipynb');
  around.watch(null);
  assert.deepEqual(said.map(({ words }) => words), ['words', null]);
  around.remove(a.line);
  assert.deepEqual(around.agents, []);
  around.show(a.line, overview({ agents: [{ name: 'late' }] }));
  assert.deepEqual(around.agents, []);
});
