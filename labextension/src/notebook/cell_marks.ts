/** Marks the cells that an agent made or changed, with what changed, Keep and Revert. */

import type { Json, NotebookPanel } from '@jupyterlab/notebook';

import { findCell, make, makeButton, makeButtons } from '../page/elements.js';
import { drawDiff } from '../render/changes.js';
import { countChanges, showInvisible } from '../text/plain.js';
import { trans } from '../text/translation.js';
import { Refusal } from './document.js';
import { restoreCells, type Way } from './rewind.js';

interface CellChange {
  way: Way & { obstacle: string };
  diff: string;
}

type Ask = (fields: { [key: string]: Json }) => Promise<{ cells?: CellChange[] } | null>;

/** The marks of one notebook; nothing of them is in the document. */
export class CellMarks {
  constructor(
    private _panel: NotebookPanel,
    private _ask: Ask
  ) {}

  /** Ask the kernel which cells are changed, and mark those. */
  async look(fields: { [key: string]: Json } = { act: 'look' }): Promise<void> {
    const looks = ++this._looks;
    const answer = await this._ask(fields);
    if (answer?.cells === undefined || looks !== this._looks || this._panel.isDisposed) {
      return;
    }
    const changes = new Map(answer.cells.map(change => [change.way.cell, change]));
    for (const [cell, { node, diff }] of this._marks) {
      // One that was moved is drawn anew.
      const isThere = node.parentElement === findCell(this._panel, cell)?.node;
      if (changes.get(cell)?.diff !== diff || !isThere) {
        this._remove(cell);
      }
    }
    for (const widget of this._panel.content.widgets) {
      const change = changes.get(widget.model.id);
      // A rewind may have restored it.
      if (change && !this._marks.has(widget.model.id) && sourceOf(widget) !== change.way.wanted) {
        const node = this._draw(change);
        widget.node.append(node);
        widget.node.classList.add('am-changed');
        this._marks.set(widget.model.id, { node, diff: change.diff });
      }
    }
  }

  /** What the kernel knew is gone. */
  dispose(): void {
    this._looks += 1;
    [...this._marks.keys()].forEach(cell => this._remove(cell));
  }

  private _draw({ way, diff }: CellChange): HTMLElement {
    const made = way.wanted === null;
    const words = made ? trans.__('Made by the agent') : trans.__('Changed by the agent');
    const node = make('div', 'am-mark');
    node.setAttribute('role', 'group');
    node.setAttribute('aria-label', words);
    const fold = make('details', '');
    fold.append(make('summary', '', `${words} · ${countChanges(diff)}`));
    fold.addEventListener('toggle', () => {
      if (fold.open && fold.childElementCount === 1) {
        fold.append(drawDiff(diff, words));
      }
    });
    const said = make('p', 'am-review-said');
    said.setAttribute('role', 'status');
    const about = showInvisible(`${words}, ${(way.now ?? '').split('\n')[0]!.slice(0, 60)}`);
    const buttons = makeButtons(
      makeButton(trans.__('Keep'), about, () => this._settle(way.cell, 'kept')),
      makeButton(trans.__('Revert'), about, () => {
        const why = this._revert(way);
        said.textContent = why && trans.__('Nothing was reverted, since %1.', showInvisible(why));
        if (why === '') {
          this._settle(way.cell, 'reverted');
        }
      })
    );
    node.append(fold, buttons, said);
    return node;
  }

  /** Restore a cell where it reads as the agent left it; return why not, or "". */
  private _revert(way: CellChange['way']): string {
    if (way.obstacle !== '') {
      return way.obstacle;
    }
    try {
      const done = restoreCells(this._panel, { op: 'restore', asker: '', cells: [way] });
      return (done as { cells: { obstacle: string }[] }).cells[0]!.obstacle;
    } catch (error) {
      if (error instanceof Refusal) {
        return error.message;
      }
      throw error;
    }
  }

  /** Tell the kernel what became of a change, and lead the focus to the next mark. */
  private _settle(cell: string, act: 'kept' | 'reverted'): void {
    const hadFocus = this._marks.get(cell)?.node.contains(document.activeElement) ?? true;
    this._remove(cell);
    if (hadFocus) {
      const next = this._panel.node.querySelector<HTMLElement>('.am-mark button');
      next === null ? this._panel.content.activate() : next.focus();
    }
    void this.look({ act, cell });
  }

  private _remove(cell: string): void {
    const node = this._marks.get(cell)?.node;
    node?.parentElement?.classList.remove('am-changed');
    node?.remove();
    this._marks.delete(cell);
  }

  private _marks = new Map<string, { node: HTMLElement; diff: string }>();
  private _looks = 0;
}

function sourceOf({ model }: NotebookPanel['content']['widgets'][number]): string {
  return model.sharedModel.getSource();
}
