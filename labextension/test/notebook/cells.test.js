import assert from 'node:assert/strict';
import { test } from 'node:test';

import { perform, Stale } from '../../lib/notebook/document.js';
import { restoreCells } from '../../lib/notebook/rewind.js';

const COUNT = 10_000;

/** Numbers that are the same in each run (mulberry32). */
function numbers(seed) {
  return most => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % most;
  };
}

/** A notebook with the cell of the agent and one other, as far as `perform` looks at it. */
function notebook(source) {
  const cells = [];
  const make = (id, text) => ({
    id,
    cell_type: 'code',
    text,
    getSource() {
      return this.text;
    },
    updateSource(start, end, value) {
      this.text = this.text.slice(0, start) + value + this.text.slice(end);
    },
    getMetadata: () => undefined,
    toJSON() {
      return { id, cell_type: 'code', source: this.text, metadata: {}, outputs: [] };
    }
  });
  cells.push(make('own', '%%agent\nGo.'), make('x', source));
  const sharedModel = {
    cells,
    transact: change => change(),
    deleteCell: index => cells.splice(index, 1),
    insertCell: (index, { id, source: text }) => cells.splice(index, 0, make(id, text))
  };
  const get = index => ({
    id: cells[index].id,
    sharedModel: cells[index],
    outputs: { toJSON: () => [], clear() {}, add() {} }
  });
  return {
    cells,
    panel: { context: { path: 'a.ipynb', model: { readOnly: false, sharedModel, cells: { get } } } }
  };
}

test('what a person typed is in the cell after any edits and reverts of an agent', () => {
  const number = numbers(17);
  let [edits, stale, reverts, refused] = [0, 0, 0, 0];
  for (let round = 0; round < COUNT; round++) {
    const { cells, panel } = notebook('a = 1\nb = 2\n');
    const cell = cells[1];
    let read = cell.text;
    let change = null; // what the agent did, until it is reverted
    let typed = []; // since the agent read the cell
    for (let step = 0; step < 8; step++) {
      const act = ['read', 'edit', 'type', 'revert'][number(4)];
      if (act === 'read') {
        [read, typed] = [cell.text, []];
      } else if (act === 'type') {
        const place = number(cell.text.length + 1);
        const word = `<${round}.${step}>`;
        cell.text = cell.text.slice(0, place) + word + cell.text.slice(place);
        typed.push(word);
      } else if (act === 'edit') {
        const source = `agent ${step}\n${read.slice(0, number(20))}`;
        const wish = { op: 'edit', asker: 'own', cell: 'x', kind: 'code', expected: read, source };
        const before = cell.text;
        try {
          perform(panel, { ...wish, step: `${step}` });
          assert.deepEqual(typed, []);
          change = { wanted: change?.now === before ? change.wanted : before, now: source };
          [read, edits] = [source, edits + 1];
        } catch (error) {
          assert.ok(error instanceof Stale);
          assert.equal(cell.text, before);
          stale++;
        }
      } else if (change !== null) {
        const before = cell.text;
        const way = { cell: 'x', cell_type: 'code', ...change, above: 'own', index: 1 };
        const names = { first: '', shown: '', step: `r${step}` };
        const wish = { op: 'restore', asker: '', cells: [{ ...way, ...names }] };
        const { obstacle } = restoreCells(panel, wish).cells[0];
        if (before === change.now || before === change.wanted) {
          assert.equal(obstacle, '');
          assert.equal(cell.text, change.wanted);
          change = null;
          reverts++;
        } else {
          assert.notEqual(obstacle, '');
          assert.equal(cell.text, before);
          refused++;
        }
      }
    }
  }
  assert.ok(Math.min(edits, stale, reverts, refused) > COUNT / 20, `${[edits, stale, reverts, refused]}`);
});
