import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parseItem } from '../../lib/render/items.js';
import { isNumeric, sortRows } from '../../lib/render/table_rows.js';

const rows = [[2, 'b'], [null, 'a'], [10, null], [-1, 'ä']];
const column = (number, direction) => sortRows(rows, number, direction).map(row => row[number]);

test('rows are sorted by numbers and words, those without a value last', () => {
  assert.deepEqual(column(0, 'ascending'), [-1, 2, 10, null]);
  assert.deepEqual(column(0, 'descending'), [10, 2, -1, null]);
  assert.deepEqual(column(1, 'ascending'), ['a', 'ä', 'b', null]);
  assert.equal(sortRows(rows, 0, 'none'), rows);
  assert.deepEqual([isNumeric(rows, 0), isNumeric(rows, 1), isNumeric([[null]], 0)], [true, false, false]);
});

test('whatever a saved table holds becomes a table', () => {
  const item = parseItem({ version: 1, kind: 'table', columns: [1, { name: 2 }], rows: [[{}, true], 3] });
  assert.deepEqual(item, {
    kind: 'table',
    columns: [{ name: '2', type: '' }],
    rows: [['{}', true], []],
    total: 0,
    width: 0
  });
});
