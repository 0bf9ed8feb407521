/** Draws on in a cell whose run another page began: this page, before it was reloaded. */

import type { CellModel, Message, NotebookPanel, Output } from '@jupyterlab/notebook';
import { JSONExt, type ReadonlyJSONArray } from '@lumino/coreutils';

import { MIME_TYPE } from '../render/items.js';

export class Redraw {
  constructor(private _panel: NotebookPanel) {}

  /** Show what a running cell has shown until now, in place of what stands there. */
  begin(id: string, outputs: { display_id: string; data: unknown }[]): void {
    const cell = this._cell(id);
    // With real-time collaboration the outputs are everybody's, and came with the document.
    if (cell?.outputs === undefined || this._panel.context.model.collaborative) {
      return;
    }
    cell.outputs.clear();
    // As when it is run: what stands in the cell from here on comes from the kernel.
    cell.trusted = true;
    const places = new Map<string, number>();
    this._places.set(id, places);
    for (const { display_id, data } of outputs) {
      places.set(display_id, cell.outputs.add(displayed(data)) - 1);
    }
  }

  /** Show what an ended cell has shown, where this page lacks some of it. */
  restore(id: string, outputs: { display_id: string; data: unknown }[]): void {
    const shown = itemsOf(this._cell(id)?.outputs?.toJSON() ?? []);
    // A saved file has its keys in another order. What is redrawn folds under the reader's hands, and
    // what others have put there, such as an error of the cell, goes.
    if (!JSONExt.deepEqual(shown, itemsOf(outputs))) {
      this.begin(id, outputs);
    }
  }

  /** Whether a cell of this notebook shows nothing. */
  isEmpty(id: string): boolean {
    return this._cell(id)?.outputs?.length === 0;
  }

  /** Apply an output of a run that is drawn here; JupyterLab itself drops it. */
  apply(message: Message): void {
    const { data, transient } = message.content as {
      data: unknown;
      transient?: { display_id?: string; agent_magics_cell?: string };
    };
    const id = transient?.agent_magics_cell ?? '';
    const places = this._places.get(id);
    const outputs = this._cell(id)?.outputs;
    const displayId = transient?.display_id;
    if (places === undefined || outputs === undefined || displayId === undefined) {
      return;
    }
    const place = places.get(displayId);
    if (place !== undefined && place < outputs.length) {
      outputs.set(place, displayed(data));
    } else if (message.header.msg_type === 'display_data') {
      places.set(displayId, outputs.add(displayed(data)) - 1);
    }
  }

  /** The cell was run again, from here. */
  end(id: string): void {
    this._places.delete(id);
  }

  private _cell(id: string): CellModel | undefined {
    return [...this._panel.context.model.cells].find(cell => cell.id === id);
  }

  private _places = new Map<string, Map<string, number>>();
}

/** What is ours of outputs; a widget is never part of what is saved. */
function itemsOf(outputs: { readonly [key: string]: unknown }[]): ReadonlyJSONArray {
  const items = outputs.map(({ data }) => (data as { [mime: string]: unknown } | undefined)?.[MIME_TYPE]);
  return items.filter(item => item !== undefined) as ReadonlyJSONArray;
}

function displayed(data: unknown): Output {
  return { output_type: 'display_data', data, metadata: {} };
}
