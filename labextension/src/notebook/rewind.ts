/** Cells that an agent changed, back to how they were before its turns, and forth again. */

import type { CellModel, Json, NotebookPanel } from '@jupyterlab/notebook';
import { JSONExt, type ReadonlyJSONArray } from '@lumino/coreutils';

import {
  findIndex,
  insertAt,
  keep,
  keptOf,
  lockOf,
  refuseReadOnly,
  removeAt,
  setOutputs,
  setSource,
  type Wish
} from './document.js';

/** One cell: the text that must stand there and the one to restore; null is for no such cell. */
export interface Way {
  cell: string;
  cell_type: string;
  now: string | null;
  wanted: string | null;
  /** Where a cell that is gone belongs: below this one, else at this place. */
  above: string;
  index: number;
  /** The step before which the cell was as it is to be, "" for none; the last that put outputs there. */
  first: string;
  shown: string;
  /** Under which the cell is kept as it is now. */
  step: string;
}

/** Restore cells, or with `preview` only say what would come about. */
export function restoreCells(panel: NotebookPanel, wish: Wish): Json {
  refuseReadOnly(panel);
  const done = (wish.cells as Way[]).map(way => {
    const index = findIndex(panel, way.cell);
    const model = index < 0 ? undefined : panel.context.model.cells.get(index);
    const obstacle = obstacleOf(model, way, wish.asker);
    const outputs = way.wanted !== null && bringsOutputs(panel, model, way);
    const isDue = obstacle === '' && (sourceOf(model) !== way.wanted || outputs);
    const place = { above: way.above, index };
    if (isDue && !wish.preview) {
      Object.assign(place, restoreCell(panel, model, way, outputs));
    }
    return { obstacle, is_due: isDue, ...place };
  });
  return { path: panel.context.path, cells: done };
}

function sourceOf(model: CellModel | undefined): string | null {
  return model?.sharedModel.getSource() ?? null;
}

/** Why a cell is left alone, or "": what a person has changed since is never overwritten. */
function obstacleOf(model: CellModel | undefined, way: Way, asker: string): string {
  const source = sourceOf(model);
  if (source === way.wanted) {
    return '';
  }
  if (source !== way.now || (model !== undefined && model.sharedModel.cell_type !== way.cell_type)) {
    return model === undefined ? 'you have deleted it' : 'you have changed it';
  }
  if (model === undefined) {
    return '';
  }
  if (way.cell === asker) {
    return 'this command runs in it';
  }
  const locked = lockOf(model.sharedModel, way.wanted === null ? 'deletable' : 'editable');
  return locked === undefined ? '' : `it is protected: its metadata says ${locked}: false`;
}

/** Whether other outputs stood in the cell before, and those of the agent still do. */
function bringsOutputs(panel: NotebookPanel, model: CellModel | undefined, way: Way): boolean {
  const shown = keptOf(panel, way.shown)?.shown;
  if (model?.outputs === undefined || shown === undefined || keptOf(panel, way.first) === undefined) {
    return false;
  }
  const now = model.outputs.toJSON() as unknown as ReadonlyJSONArray;
  return JSONExt.deepEqual(now, shown as unknown as ReadonlyJSONArray);
}

function restoreCell(
  panel: NotebookPanel,
  model: CellModel | undefined,
  way: Way,
  outputs: boolean
): { above?: string; index?: number } {
  const before = keptOf(panel, way.first)?.before;
  if (model === undefined) {
    const last = panel.context.model.cells.length;
    const above = way.above === '' ? -1 : findIndex(panel, way.above);
    const index = above < 0 ? Math.min(way.index, last) : above + 1;
    const made = before ?? { cell_type: way.cell_type, metadata: {} };
    insertAt(panel, index, { ...made, id: way.cell, source: way.wanted! });
    return { index };
  }
  keep(panel, way.step, model.sharedModel);
  if (way.wanted === null) {
    return removeAt(panel, findIndex(panel, way.cell));
  }
  setSource(model.sharedModel, way.wanted);
  if (outputs) {
    setOutputs(model, before?.outputs ?? [], before?.execution_count ?? null);
    keptOf(panel, way.step)!.shown = model.outputs!.toJSON();
  }
  return {};
}
