/** What a kernel that has ended leaves behind: no live-looking buttons, nothing that "runs". */

import type { Json, NotebookPanel, Output } from '@jupyterlab/notebook';

import { MIME_TYPE } from './items.js';

const WIDGET = 'application/vnd.jupyter.widget-view+json';
const ENDED = 'the kernel ended';

type Data = { [key: string]: Json };

/** Put an end to all that stands open in a notebook, since nobody can go on with it. */
export function settleAll(panel: NotebookPanel): void {
  const { cells } = panel.context.model;
  for (let index = 0; index < cells.length; index++) {
    const outputs = cells.get(index).outputs;
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
  if (item.status === 'running') {
    const note = [item.note, ENDED].filter(Boolean).join(', ');
    return { ...reworded(rest, '(running', `(failed, ${ENDED}`), [MIME_TYPE]: { ...item, status: 'failed', note } };
  }
  if (widget === undefined) {
    return null;
  }
  const asked = String(item.text);
  const words = `${asked} Not answered: ${ENDED}.`;
  return { ...reworded(rest, asked, words), [MIME_TYPE]: { ...item, text: words } };
}

/** The forms for other readers, with one word in place of another. */
function reworded(data: Data, before: string, after: string): Data {
  const words = (mime: string): string => {
    const text = String(data[mime] ?? '');
    return text.includes(before) ? text.replace(before, () => after) : `${text} (${ENDED})`;
  };
  return { ...data, 'text/markdown': words('text/markdown'), 'text/plain': words('text/plain') };
}
