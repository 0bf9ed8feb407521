/** What a turn changed in files, with Keep and Revert for each change; nothing of it is saved. */

import type { Json, NotebookPanel } from '@jupyterlab/notebook';

import { make, makeButton, makeButtons } from '../page/elements.js';
import { drawDiff } from '../render/changes.js';
import { countChanges, countLines, numeral, showInvisible } from '../text/plain.js';
import { trans } from '../text/translation.js';

/** Lines of changes that start unfolded; the others are drawn when somebody unfolds them. */
const OPEN_LINES = 300;

interface Change {
  path: string;
  diff: string;
  state: 'open' | 'kept' | 'reverted';
}

/** What the kernel answers about one block of changes. */
export interface ReviewData {
  changes: Change[];
  /** Changes that are too many to be sent. */
  more: number;
  can_undo: boolean;
  undone: boolean;
  /** Why something was not done. */
  said: string;
}

/** Asks the kernel; the answer is empty where it knows nothing of the turn. */
type Ask = (fields: { [key: string]: Json }) => Promise<Partial<ReviewData> | null>;

/** The reviews of one notebook. */
export class Reviews {
  constructor(
    private _panel: NotebookPanel,
    private _ask: Ask
  ) {}

  /** Look for what can be reviewed, in all cells. */
  look(): void {
    this._panel.node.querySelectorAll<HTMLElement>('.am-changes').forEach(block => void this.draw(block));
  }

  /** Draw the review of a block of changes that is in this notebook. */
  async draw(block: HTMLElement): Promise<void> {
    const cell = this._panel.content.widgets.find(({ node }) => node.contains(block));
    if (cell === undefined || block.querySelector('.am-review') !== null) {
      return;
    }
    const place = [...cell.node.querySelectorAll('.am-changes')].indexOf(block);
    const about = { cell: cell.model.id, place };
    const kernels = this._kernels;
    const data = await this._ask({ ...about, act: 'look' });
    const isFirst = block.querySelector('.am-review') === null;
    if (isReview(data) && isFirst && kernels === this._kernels) {
      const review = new Review(data, fields => this._ask({ ...about, ...fields }));
      block.append(review.node);
      block.classList.add('am-reviewed');
      if (block.querySelector(':scope > [data-key$=".diff"]') === null) {
        foldPatch(cell.node);
      }
    }
  }

  /** The kernel has gone, and with it what could be reverted. */
  dispose(): void {
    this._kernels += 1;
    for (const review of this._panel.node.querySelectorAll('.am-review')) {
      review.parentElement?.classList.remove('am-reviewed');
      review.remove();
    }
  }

  private _kernels = 0;
}

/** Fold the patch that shows the lines of a review already, unless the person has unfolded it. */
function foldPatch(cell: HTMLElement): void {
  for (const card of cell.querySelectorAll<HTMLDetailsElement>('.am-card[data-initial=true]')) {
    if (card.querySelector(':scope > .am-body > .am-diff') !== null) {
      card.open = false;
    }
  }
}

function isReview(data: Partial<ReviewData> | null): data is ReviewData {
  return Array.isArray(data?.changes) && data.changes.length > 0;
}

class Review {
  readonly node = make('details', 'am-review');

  constructor(
    private _data: ReviewData,
    private _ask: Ask
  ) {
    this._said.setAttribute('role', 'status');
    this._changes = _data.changes.map((_, index) => this._makeChange(index));
    this.node.append(this._head, ...this._changes, this._said, this._buttons);
    this.node.open = this._left > 0;
    this._show();
  }

  /** How many changes nobody has looked at. */
  private get _left(): number {
    return this._data.undone ? 0 : this._data.changes.filter(({ state }) => state === 'open').length;
  }

  private _makeChange(index: number): HTMLDetailsElement {
    const fold = make('details', 'am-review-change');
    fold.addEventListener('toggle', () => this._fill(fold, index));
    this._lines += countLines(this._data.changes[index]!.diff);
    fold.open = this._lines <= OPEN_LINES;
    return fold;
  }

  /** Draw the lines of an unfolded change, once. */
  private _fill(fold: HTMLDetailsElement, index: number): void {
    const { diff } = this._data.changes[index]!;
    if (fold.open && fold.querySelector('pre') === null) {
      fold.querySelector('summary')?.after(drawDiff(diff, this._nameOf(index)));
    }
  }

  private _nameOf(index: number): string {
    const { changes } = this._data;
    return trans.__('change %1 of %2, %3', index + 1, changes.length, showInvisible(changes[index]!.path));
  }

  private _show(): void {
    this._changes.forEach((fold, index) => this._showChange(fold, index));
    const { changes, more, undone } = this._data;
    const count = (state: string): number => changes.filter(change => change.state === state).length;
    const facts = undone
      ? [trans.__('undone; %agent redo makes the changes again')]
      : [
          trans._n('%2 change', '%2 changes', changes.length, numeral(changes.length)),
          ...(['kept', 'reverted'] as const).flatMap(state =>
            count(state) === 0 ? [] : [`${numeral(count(state))} ${STATES[state]()}`]
          ),
          ...(more > 0 ? [trans.__('%1 more in %agent review', numeral(more))] : [])
        ];
    this._head.textContent = `${trans.__('Review')} · ${facts.join(' · ')}`;
    this._said.textContent = showInvisible(this._data.said);
    this._buttons.replaceChildren();
    if (this._left > 0) {
      this._buttons.append(makeButton(trans.__('Keep all'), '', () => void this._keepAll()));
    }
    if (this._data.can_undo && !undone && changes.some(({ state }) => state !== 'reverted')) {
      const undo = (): void => void this._act({ act: 'undo' });
      this._buttons.append(makeButton(trans.__('Undo all'), trans.__('all changes of this turn'), undo));
    }
  }

  private _showChange(fold: HTMLDetailsElement, index: number): void {
    const { path, diff, state } = this._data.changes[index]!;
    const isOver = this._data.undone || state === 'reverted';
    const number = index + 1;
    const summary = make('summary', '');
    const facts = [countChanges(diff), ...(state === 'open' ? [] : [STATES[state]()])];
    summary.append(make('code', '', showInvisible(path)), ` ${facts.join(' · ')}`);
    const act = (label: string, what: string): HTMLElement =>
      makeButton(label, this._nameOf(index), () => void this._act({ act: what, number }));
    const buttons = makeButtons(
      ...(state === 'open' && !isOver ? [act(trans.__('Keep'), 'keep')] : []),
      ...(isOver ? [] : [act(trans.__('Revert'), 'revert')])
    );
    const shown = fold.querySelector('pre');
    fold.replaceChildren(summary, ...(shown === null ? [] : [shown]), buttons);
    this._fill(fold, index);
  }

  private async _keepAll(): Promise<void> {
    const open = this._data.changes.flatMap(({ state }, index) => (state === 'open' ? [index + 1] : []));
    for (const number of open) {
      await this._act({ act: 'keep', number });
    }
  }

  private async _act(fields: { act: string; number?: number }): Promise<void> {
    const before = this._data;
    const data = await this._ask(fields as { [key: string]: Json });
    if (!isReview(data)) {
      this._said.textContent = trans.__('The kernel does not answer; try it again.');
      return;
    }
    const hadFocus = this.node.contains(document.activeElement);
    this._data = data;
    data.changes.forEach(({ state }, index) => {
      if (state !== before.changes[index]?.state) {
        this._changes[index]!.open = false;
      }
    });
    this._show();
    if (this._left === 0 && data.said === '') {
      this.node.open = false;
    }
    if (hadFocus) {
      this._refocus(data.said === '' ? (fields.number ?? 1) : (fields.number ?? 1) - 1);
    }
  }

  /** Go to the first button behind a change that is still open, else to the head of the review. */
  private _refocus(behind: number): void {
    const open = (this.node.open ? this._changes : []).filter(
      (_, index) => this._data.changes[index]!.state === 'open' && !this._data.undone
    );
    const next = open.find(fold => this._changes.indexOf(fold) >= behind) ?? open[0];
    if (next !== undefined) {
      next.open = true;
    }
    (next?.querySelector('button') ?? this._head).focus();
  }

  private _head = make('summary', 'am-review-head');
  private _said = make('p', 'am-review-said');
  private _buttons = makeButtons();
  private _changes: HTMLDetailsElement[];
  private _lines = 0;
}

const STATES = { kept: () => trans.__('kept'), reverted: () => trans.__('reverted') };
