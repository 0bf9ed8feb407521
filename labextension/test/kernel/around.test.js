import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Around } from '../../lib/kernel/around.js';

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
  const recent = { id: 'new', ended: 2, pinned: false, turns: 1 };
  const grown = { ...recent, ended: 3, turns: 2 };
  around.show(a.line, overview({ conversations: [grown, old], more: 3, today: 0.5 }));
  around.show(b.line, overview({ conversations: [recent], more: 3, today: 0.5 }));
  assert.deepEqual(around.conversations, [old, grown]);
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

test('agents at work stand before those at rest, and notebooks of one name have their folders', () => {
  const around = new Around();
  const [a, b, c] = ['x/a.ipynb', 'y/a.ipynb', 'c.ipynb'].map(path => place(path).place);
  [a, b, c].forEach(each => around.add(each));
  around.show(a.line, overview({ agents: [{ name: 'rests', doing: '' }] }));
  around.show(c.line, overview({ agents: [{ name: 'works', doing: 'Thinks' }] }));
  assert.deepEqual(around.agents.map(({ name }) => name), ['works', 'rests']);
  assert.deepEqual([a, b, c].map(each => around.nameOf(each)), ['x/a.ipynb', 'y/a.ipynb', 'c.ipynb']);
});

test('signs that turn the name of a notebook around are written out', () => {
  assert.equal(new Around().nameOf(place('x/a\u202Ebpyn.ipynb').place), 'a⟨U+202E⟩bpyn.ipynb');
});
