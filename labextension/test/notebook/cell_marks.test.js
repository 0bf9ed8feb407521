import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Element } from '../dom.js';
import { CellMarks } from '../../lib/notebook/cell_marks.js';

const CHANGE = { way: { cell: 'b', wanted: 'old', now: 'new', obstacle: '' }, diff: '-old\n+new' };

/** A cell as it is drawn; JupyterLab draws one that is moved anew. */
function draw(id) {
  return { node: new Element('div'), model: { id, sharedModel: { getSource: () => 'new' } } };
}

test('a changed cell that is moved, or was gone for a while, is marked again', async () => {
  const content = { widgets: [draw('a'), draw('b')] };
  const marks = new CellMarks({ content }, async () => ({ cells: [CHANGE] }));
  const marked = () => content.widgets.map(({ node }) => node.querySelectorAll('.am-mark').length);
  await marks.look();
  assert.deepEqual(marked(), [0, 1]);
  const [first] = content.widgets;
  for (const widgets of [[draw('b'), first], [first], [first, draw('b')]]) {
    content.widgets = widgets;
    await marks.look();
    assert.deepEqual(marked(), widgets.map(({ model }) => Number(model.id === 'b')));
    assert.ok(widgets.every(({ node }) => node.classList.contains('am-changed') === (node !== first.node)));
  }
});
