/**
 * What a kernel that has ended leaves behind: no live-looking buttons, nothing that "runs".
 *
 * With real-time collaboration the server saves the document as it is, widgets included.
 */

import type { CellJson, Json, NotebookPanel, Output } from '@jupyterlab/notebook';

import { findCell } from '../page/elements.js';
import { MIME_TYPE, MOST_DEPTH } from '../render/items.js';

const WIDGET = 'application/vnd.jupyter.widget-view+json';
const ENDED = 'the kernel ended';
const COPIED = 'the cell was copied';
/** Characters of a command's output, as in render/describe.py. */
const MOST_KEPT = 4_000;

const SCRATCH = 'python (scratch)';
const UNUSUAL = /[^\p{L}\p{N}_.-]/gu;

type Data = { [key: string]: Json };

/**
 * Put an end to all that stands open in a notebook, since nobody can go on with it.
 *
 * @param copies - settle only these cells, which were copied while they ran.
 */
export function settleAll(panel: NotebookPanel, copies?: Set<string>): void {
  if (copies && panel.context.model.collaborative) {
    return; // a cell that is new here is another page's, whose question may be open there
  }
  for (const { id, outputs } of panel.context.model.cells) {
    if (copies?.has(id) === false) {
      continue;
    }
    outputs?.toJSON().forEach((output, place) => {
      const shown = findCell(panel, id)?.node.querySelectorAll('.jp-OutputArea-child')[place];
      const printed = shown?.querySelector('.agm-stream')?.textContent ?? '';
      const data = settled((output.data ?? {}) as Data, copies ? COPIED : ENDED, printed);
      if (data !== null) {
        outputs.set(place, { ...output, data } as Output);
      }
    });
  }
}

/** Save what stands open as its words: a widget is drawn by its kernel alone, and a file has none. */
export function saveWords({ context }: NotebookPanel): void {
  const { model } = context;
  const whole = model.toJSON.bind(model);
  model.toJSON = () => withoutWidgets(whole());
}

/** A notebook's content without the widgets of our outputs. */
export function withoutWidgets(notebook: { cells: CellJson[] }): { cells: CellJson[] } {
  const withWords = (output: Output): Output => {
    const { [WIDGET]: widget, ...data } = (output.data ?? {}) as Data;
    const item = data[MIME_TYPE] as Data | undefined;
    if (widget === undefined || item === undefined) {
      return output;
    }
    const isOpen = item.status === undefined; // a call says itself that it runs
    return { ...output, data: isOpen ? closed(data, ' when this was saved') : data };
  };
  const cells = notebook.cells.map(cell =>
    cell.outputs ? { ...cell, outputs: cell.outputs.map(withWords) } : cell
  );
  return { ...notebook, cells };
}

/**
 * The bundle of an output of ours as it stays; null where nothing in it is open.
 *
 * @param printed - what a command has printed since, as the page shows it.
 */
export function settled(data: Data, why = ENDED, printed = ''): Data | null {
  const item = data[MIME_TYPE] as Data | undefined;
  if (item === undefined) {
    return null;
  }
  const { [WIDGET]: widget, ...rest } = data;
  const ended = endedItem(item, why);
  if (ended !== null) {
    const kept = printed === '' ? ended : { ...ended, output: printed.slice(-MOST_KEPT) };
    return { ...reworded(rest, runningLines(item), `$1(failed, ${why}`, ` (${why})`), [MIME_TYPE]: kept };
  }
  return widget === undefined ? null : closed(data, `: ${why}`);
}

/** A question or a map's card as words, since nobody can answer it there. */
function closed(data: Data, why: string): Data {
  const { [WIDGET]: _, ...rest } = data;
  const item = data[MIME_TYPE] as Data;
  const asked = String(item.text);
  const end = `${/[.?!]$/.test(asked) ? '' : '.'} Not ${item.kind === 'notice' ? 'answered' : 'finished'}${why}.`;
  const text = asked + end;
  return { ...reworded(rest, asked, text.replaceAll('$', '$$$$'), end), [MIME_TYPE]: { ...item, text } };
}

/** An item whose calls do not run any more; null where none ran. */
function endedItem(item: Data, why: string, depth = 0): Data | null {
  if (item.status === 'running') {
    const note = [item.note, why].filter(Boolean).join(', ');
    return { ...item, status: 'failed', note };
  }
  const before = depth < MOST_DEPTH && Array.isArray(item.items) ? (item.items as Data[]) : [];
  const items = before.map(each => endedItem(each, why, depth + 1) ?? each);
  return items.some((each, index) => each !== before[index]) ? { ...item, items } : null;
}

/** The first lines of the calls that ran, as Markdown and as text; of one call its only one. */
function runningLines(item: Data): RegExp {
  // As `_name` in render/text.py writes them; what a command printed may look like such a line.
  const names = runningNames(item).map(name => (name === SCRATCH ? name : name.replace(UNUSUAL, '?')));
  const either = names.map(name => name.replace(/\W/g, '\\$&')).join('|');
  return new RegExp(`^((?:\\*\\*(?:${either})\\*\\*|\\[(?:${either})\\]).*)\\(running`, item.items ? 'gm' : 'm');
}

function runningNames(item: Data, depth = 0): string[] {
  const own = item.status === 'running' ? [String(item.name)] : [];
  const inside = depth < MOST_DEPTH && Array.isArray(item.items) ? (item.items as Data[]) : [];
  return [...own, ...inside.flatMap(each => runningNames(each, depth + 1))];
}

/** The forms for other readers, with one text in place of another, or `end` where that is not found. */
function reworded(data: Data, before: string | RegExp, after: string, end: string): Data {
  const words = (mime: string): string => {
    const text = String(data[mime] ?? '');
    const changed = text.replace(before, after);
    return changed === text ? text + end : changed;
  };
  return { ...data, 'text/markdown': words('text/markdown'), 'text/plain': words('text/plain') };
}
