import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MIME_TYPE } from '../../lib/render/items.js';
import { Redraw } from '../../lib/notebook/redraw.js';

/** A notebook with one cell that shows these items; `drawn` are the outputs that were added. */
function notebookOf(items) {
  const drawn = [];
  const outputs = {
    toJSON: () => items.map(item => (item.text ? item : { data: { [MIME_TYPE]: item } })),
    clear: () => (drawn.length = 0),
    add: output => drawn.push(output)
  };
  const cells = [{ id: 'cell', outputs }];
  return { drawn, panel: { context: { model: { cells, collaborative: false } } } };
}

const wanted = [{ display_id: 'd', data: { [MIME_TYPE]: { version: 1, items: [{ a: 1, b: [2] }] } } }];

test('a saved cell is redrawn where something is missing, and not for the order of keys', () => {
  const cases = [
    [[{ items: [{ b: [2], a: 1 }], version: 1 }], 0],
    [[{ items: [{ b: [2], a: 1 }], version: 1 }, { text: 'UsageError: stopped' }], 0],
    [[{ items: [{ b: [2, 3], a: 1 }], version: 1 }], 1],
    [[{ items: [{ b: [2], a: 1 }] }], 1],
    [[], 1]
  ];
  for (const [items, times] of cases) {
    const { drawn, panel } = notebookOf(items);
    new Redraw(panel).restore('cell', wanted);
    assert.equal(drawn.length, times, JSON.stringify(items));
  }
});
