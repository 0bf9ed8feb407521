import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseItem } from '../../lib/render/items.js';

test('another version, another kind and no item at all are kept as they are', () => {
  for (const data of [{ version: 2, kind: 'text' }, { version: 1, kind: 'new' }, null, [], 'x']) {
    assert.deepEqual(parseItem(data), { kind: 'unknown', data });
  }
});

test('fields that are missing or of a wrong type do no harm', () => {
  const item = parseItem({ version: 1, kind: 'tool', status: 'odd', output: { a: 1 } });
  assert.equal(item.status, 'completed');
  assert.equal(item.output, '{"a":1}');
  assert.equal(item.exitCode, null);
});

test('a block reads its items, each by its own version', () => {
  const items = [{ version: 1, kind: 'text', text: 'a' }, { kind: 'text' }];
  const block = parseItem({ version: 1, kind: 'block', items });
  assert.deepEqual(block.items.map(item => item.kind), ['text', 'unknown']);
});

test('a plan without steps is an empty plan', () => {
  assert.deepEqual(parseItem({ version: 1, kind: 'plan' }).steps, []);
  const changes = parseItem({ version: 1, kind: 'changes', files: [{ path: 'a', added: 1 }, 3] });
  assert.deepEqual(changes.files, [
    { path: 'a', change: 'changed', added: 1, removed: null, note: '' }
  ]);
  assert.deepEqual([changes.diff, changes.runs, changes.notes], ['', [], []]);
});

test('only addresses of web pages become links', () => {
  const urls = ['https://a.b/c', 'HTTP://a.b', 'javascript:alert(1)', 'https://a@b', '//a.b', 'data:x', 3];
  const sources = [...urls.map(url => ({ title: 'T', url })), 'no object'];
  const item = parseItem({ version: 1, kind: 'text', text: 'x', sources });
  assert.deepEqual(item.sources.map(source => source.url), ['https://a.b/c', 'HTTP://a.b', '', '', '', '', '']);
  assert.deepEqual(parseItem({ version: 1, kind: 'text', text: 'x' }).sources, []);
});

test('thoughts are read as what they are', () => {
  const item = parseItem({ version: 1, kind: 'reasoning', text: 'Hm.', left_out: 7 });
  assert.deepEqual(item, { kind: 'reasoning', text: 'Hm.', leftOut: 7 });
});

test('a picture has words, whatever stands in their place', () => {
  assert.deepEqual(parseItem({ version: 1, kind: 'picture' }), { kind: 'picture', alt: '' });
});

test('what would be drawn as nothing is written out, in all that people read at a glance', () => {
  const [hidden, shown] = ['a\u202eb\u200b', 'a⟨U+202E⟩b⟨U+200B⟩'];
  const read = fields => parseItem({ version: 1, ...fields });
  assert.equal(read({ kind: 'notice', text: hidden }).text, shown);
  const plan = read({ kind: 'plan', explanation: hidden, steps: [{ description: hidden }] });
  assert.deepEqual([plan.explanation, plan.steps[0].description], [shown, shown]);
  const tool = read({ kind: 'tool', name: hidden, title: hidden, note: hidden });
  assert.deepEqual([tool.name, tool.title, tool.note], [shown, shown, shown]);
  assert.equal(read({ kind: 'group', title: hidden }).title, shown);
  const files = [{ path: hidden, note: hidden }];
  const changes = read({ kind: 'changes', files, runs: [hidden], notes: [hidden] });
  const found = [changes.files[0].path, changes.files[0].note, ...changes.runs, ...changes.notes];
  assert.deepEqual(found, [shown, shown, shown, shown]);
});

test('items that are nested without end are read to some depth', () => {
  let item = { version: 1, kind: 'text', text: 'deep' };
  let value = 'deep';
  for (let depth = 0; depth < 50_000; depth++) {
    item = { version: 1, kind: 'block', items: [item] };
    value = [value];
  }
  assert.equal(parseItem(item).kind, 'block');
  assert.equal(parseItem({ version: 1, kind: 'notice', text: value }).text, '…');
  assert.equal(parseItem({ version: 1, kind: 'plan', explanation: value }).explanation, '…');
});
