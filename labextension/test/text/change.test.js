import assert from 'node:assert/strict';
import { test } from 'node:test';

import { smallestChange } from '../../lib/text/change.js';

function applied(before, after) {
  const { start, end, value } = smallestChange(before, after);
  return before.slice(0, start) + value + before.slice(end);
}

test('a change leaves what is around it alone', () => {
  const change = smallestChange('x = 1\ny = 2\n', 'x = 1\ny = 3\n');
  assert.deepEqual(change, { start: 10, end: 11, value: '3' });
});

test('any text becomes any other', () => {
  const texts = ['', 'a', 'aa', 'aaa', 'aba', 'b\n', 'a\nb\nc', '😀', '😁', 'a😀b', 'a😁b'];
  for (const before of texts) {
    for (const after of texts) {
      assert.equal(applied(before, after), after);
    }
  }
});

test('a character is never replaced by half', () => {
  // The two faces share their first code unit.
  assert.deepEqual(smallestChange('a😀b', 'a😁b'), { start: 1, end: 3, value: '😁' });
});
