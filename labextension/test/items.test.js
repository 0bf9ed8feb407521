import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseItem } from '../lib/items.js';

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
