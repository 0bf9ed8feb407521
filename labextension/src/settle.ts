/** What a kernel that has ended leaves behind: no live-looking buttons, nothing that "runs". */

import type { Json, NotebookPanel, Output } from '@jupyterlab/notebook';

import { MIME_TYPE, MOST_DEPTH } from './items.js';

const WIDGET = 'application/vnd.jupyter.widget-view+json';
const ENDED = 'the kernel ended';
/** In the first line of a call, as Markdown and as text. */
const RUNNING = /^((?:\*\*|\[).*)\(running/gm;

type Data = { [key: string]: Json };

/** Put an end to all that stands open in a notebook, since nobody can go on with it. */
export function settleAll(panel: NotebookPanel): void {
  for (const { outputs } of panel.context.model.cells) {
    outputs?.toJSON().forEach((output, place) => {
      const data = settled((output.data ?? {}) as Data);
      if (data !== null) {
        outputs.set(place, { ...output, data } as Output);
      }
    });
  }
}

/** The bundle of an output of ours as it stays; null where nothing in it is open. */
export function settled(data: Data): Data | null {
  const item = data[MIME_TYPE] as Data | undefined;
  if (item === undefined) {
    return null;
  }
  const { [WIDGET]: widget, ...rest } = data;
  const ended = endedItem(item);
  if (ended !== null) {
    return { ...reworded(rest, RUNNING, `$1(failed, ${ENDED}`), [MIME_TYPE]: ended };
  }
  if (widget === undefined) {
    return null;
  }
  const asked = String(item.text);
  const words = `${asked} Not answered: ${ENDED}.`;
  return { ...reworded(rest, asked, words.replaceAll('$', '$$$$')), [MIME_TYPE]: { ...item, text: words } };
}

/** An item whose calls do not run any more; null where none ran. */
function endedItem(item: Data, depth = 0): Data | null {
  if (item.status === 'running') {
    const note = [item.note, ENDED].filter(Boolean).join(', ');
    return { ...item, status: 'failed', note };
  }
  const before = depth < MOST_DEPTH && Array.isArray(item.items) ? (item.items as Data[]) : [];
  const items = before.map(each => endedItem(each, depth + 1) ?? each);
  return items.some((each, index) => each !== before[index]) ? { ...item, items } : null;
}

/** The forms for other readers, with one text in place of another. */
function reworded(data: Data, before: string | RegExp, after: string): Data {
  const words = (mime: string): string => {
    const text = String(data[mime] ?? '');
    const changed = text.replace(before, after);
    return changed === text ? `${text} (${ENDED})` : changed;
  };
  return { ...data, 'text/markdown': words('text/markdown'), 'text/plain': words('text/plain') };
}
