/** What the kernel may ask of the open notebook: read, insert, edit, delete, show outputs. */

import type {
  CellJson,
  CellModel,
  Json,
  NotebookPanel,
  Output,
  SharedCell,
  UndoManager
} from '@jupyterlab/notebook';

import { smallestChange } from '../text/change.js';

/** Characters of one output that leave the page. */
const MOST_TEXT = 200_000;
const IMAGES = ['image/png', 'image/jpeg'];

/** Why something is not done, in a sentence that the model reads. */
export class Refusal extends Error {}

/** The cell is not the one that was read any more. */
export class Stale extends Error {
  constructor(readonly source: string) {
    super('the cell has changed');
  }
}

/** A request of the kernel. `asker` is the id of the cell whose agent asks. */
export interface Wish {
  op: string;
  asker: string;
  [field: string]: unknown;
}

/** A cell as it was before a step of an agent's. */
export interface Kept {
  before: CellJson;
  /** The outputs that the step put there. */
  shown: Output[];
}

/** Steps of each notebook whose cells are kept, newest last: texts the kernel has, outputs it has not. */
const kept = new WeakMap<NotebookPanel, Map<string, Kept>>();
const MOST_KEPT = 100;

export function keptOf(panel: NotebookPanel, step: string): Kept | undefined {
  return kept.get(panel)?.get(step);
}

/** Keep a cell as it is before a step; a second look at the same step changes nothing. */
export function keep(panel: NotebookPanel, step: unknown, cell: SharedCell): void {
  const steps = kept.get(panel) ?? new Map<string, Kept>();
  kept.set(panel, steps);
  if (typeof step === 'string' && !steps.has(step)) {
    steps.set(step, { before: cell.toJSON(), shown: [] });
    for (const old of [...steps.keys()].slice(0, -MOST_KEPT)) {
      steps.delete(old);
    }
  }
}

/** Do what the kernel asks and return what it is told. */
export function perform(panel: NotebookPanel, wish: Wish): Json {
  if (findIndex(panel, wish.asker) < 0) {
    throw new Refusal(`the cell that asks is not in ${panel.context.path}`);
  }
  switch (wish.op) {
    case 'read':
      return read(panel, Number(wish.start), Number(wish.limit), String(wish.cell ?? ''));
    case 'insert':
      return insert(panel, wish);
    case 'edit':
      return edit(panel, wish);
    case 'delete':
      return remove(panel, wish);
    case 'show':
      return show(panel, wish);
    default:
      throw new Refusal(`this version of the JupyterLab extension cannot ${wish.op}`);
  }
}

function read(panel: NotebookPanel, start: number, limit: number, id: string): Json {
  const { cells } = panel.context.model;
  const first = id === '' ? start : indexOf(panel, id);
  const last = id === '' ? Math.min(cells.length, start + limit) : first + 1;
  const found: Json[] = [];
  for (let index = first; index < last; index++) {
    found.push(describe(cells.get(index), index, id !== ''));
  }
  return { path: panel.context.path, total: cells.length, cells: found };
}

function describe(cell: CellModel, index: number, whole: boolean): Json {
  const shared = cell.sharedModel;
  return {
    id: cell.id,
    index,
    type: shared.cell_type,
    source: shared.getSource(),
    count: cell.executionCount ?? null,
    running: cell.executionState === 'running',
    read_only: shared.getMetadata('editable') === false,
    outputs: (cell.outputs?.toJSON() ?? []).map(output => describeOutput(output, whole))
  };
}

/** An output as text; with its picture where the whole cell is read. */
function describeOutput(output: Output, whole: boolean): Json {
  if (output.output_type === 'stream') {
    return { text: plain(output.text) };
  }
  if (output.output_type === 'error') {
    const traceback = plain(output.traceback).trim();
    return { text: traceback || `${String(output.ename)}: ${String(output.evalue)}`, error: true };
  }
  const data = (output.data ?? {}) as Record<string, unknown>;
  const image = IMAGES.find(mime => mime in data);
  const text = plain(data['text/plain'] ?? data['text/markdown'] ?? Object.keys(data).join(', '));
  if (image === undefined || !whole) {
    return { text: image === undefined ? text : `[${image}] ${text}` };
  }
  const encoded = Array.isArray(data[image]) ? (data[image] as string[]).join('') : data[image];
  return { text, image: `data:${image};base64,${String(encoded).replace(/\s/g, '')}` };
}

/** Text of an output, which a saved notebook may hold as a list of lines. */
function plain(text: unknown): string {
  const joined = Array.isArray(text) ? text.join('') : String(text ?? '');
  if (joined.length <= MOST_TEXT) {
    return joined;
  }
  return `${joined.slice(0, MOST_TEXT)}\n… ${joined.length - MOST_TEXT} characters left out …`;
}

// -- changes: one transaction each, so that one undo takes one of them back -----------------------

function insert(panel: NotebookPanel, wish: Wish): Json {
  refuseReadOnly(panel);
  const after = String(wish.after);
  const index = after === '' ? 0 : indexOf(panel, after) + 1;
  insertAt(panel, index, { cell_type: String(wish.kind), source: String(wish.source) });
  return { id: panel.context.model.sharedModel.cells[index]!.id, index };
}

export function insertAt(panel: NotebookPanel, index: number, cell: CellJson): void {
  const notebook = panel.context.model.sharedModel;
  asOneStep(notebook.undoManager, () => {
    notebook.transact(() => void notebook.insertCell(index, cell), true);
  });
}

function edit(panel: NotebookPanel, wish: Wish): Json {
  refuseReadOnly(panel);
  const cell = changeable(panel, wish, 'editable');
  if (wish.kind !== undefined && cell.cell_type !== wish.kind) {
    throw new Refusal(`cell ${String(wish.cell)} is a ${cell.cell_type} cell now: read it again`);
  }
  keep(panel, wish.step, cell);
  setSource(cell, String(wish.source));
  return {};
}

export function setSource(cell: SharedCell, source: string): void {
  const { start, end, value } = smallestChange(cell.getSource(), source);
  asOneStep(cell.undoManager, () => cell.updateSource(start, end, value));
}

function remove(panel: NotebookPanel, wish: Wish): Json {
  refuseReadOnly(panel);
  keep(panel, wish.step, changeable(panel, wish, 'deletable'));
  return removeAt(panel, indexOf(panel, String(wish.cell)));
}

/** Remove a cell, and return where it was. */
export function removeAt(panel: NotebookPanel, index: number): { above: string; index: number } {
  const notebook = panel.context.model.sharedModel;
  const above = index === 0 ? '' : notebook.cells[index - 1]!.id;
  asOneStep(notebook.undoManager, () => {
    notebook.transact(() => notebook.deleteCell(index), true);
  });
  return { above, index };
}

/** Keep a change apart from what the person did a moment before, and does after. */
export function asOneStep(history: UndoManager | null | undefined, change: () => void): void {
  history?.stopCapturing();
  change();
  history?.stopCapturing();
}

/** Put outputs into a cell, as when it is run: nothing that an undo would take back. */
function show(panel: NotebookPanel, wish: Wish): Json {
  const cell = panel.context.model.cells.get(indexOf(panel, String(wish.cell)));
  if (cell.outputs === undefined) {
    throw new Refusal('it is no code cell, so it has no outputs');
  }
  refuseStale(cell.sharedModel, wish);
  keep(panel, wish.step, cell.sharedModel);
  setOutputs(cell, wish.outputs as Output[], null);
  const step = keptOf(panel, String(wish.step));
  if (step !== undefined) {
    step.shown = cell.outputs.toJSON();
  }
  return {};
}

export function setOutputs(cell: CellModel, outputs: Output[], count: number | null): void {
  cell.outputs?.clear();
  cell.executionCount = count;
  for (const output of outputs) {
    cell.outputs?.add(output);
  }
}

/** The cell that a wish is about, if it is as it was read and may be changed. */
function changeable(panel: NotebookPanel, wish: Wish, permission: string): SharedCell {
  const cell = panel.context.model.cells.get(indexOf(panel, String(wish.cell))).sharedModel;
  const locked = lockOf(cell, permission);
  if (locked !== undefined) {
    throw new Refusal(`the cell is protected: its metadata says ${locked}: false`);
  }
  refuseStale(cell, wish);
  return cell;
}

/** The metadata that forbids to change a cell. */
export function lockOf(cell: SharedCell, permission: string): string | undefined {
  return [permission, 'editable'].find(name => cell.getMetadata(name) === false);
}

function refuseStale(cell: SharedCell, wish: Wish): void {
  const source = cell.getSource();
  if (source !== wish.expected) {
    throw new Stale(source);
  }
}

export function refuseReadOnly(panel: NotebookPanel): void {
  if (panel.context.model.readOnly) {
    throw new Refusal(`${panel.context.path} is open read-only`);
  }
}

function indexOf(panel: NotebookPanel, id: string): number {
  const index = findIndex(panel, id);
  if (index < 0) {
    throw new Refusal(`there is no cell ${id} in ${panel.context.path} (any more)`);
  }
  return index;
}

export function findIndex(panel: NotebookPanel, id: string): number {
  return panel.context.model.sharedModel.cells.findIndex(cell => cell.id === id);
}
