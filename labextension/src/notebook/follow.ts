/** Keeps the newest output of a running cell in sight, until the reader scrolls away. */

import type { NotebookPanel } from '@jupyterlab/notebook';

import { findCell, makeButton } from '../page/elements.js';
import { trans } from '../text/translation.js';

/** Milliseconds in which a scroll belongs to what the reader just did. */
const BY_READER = 700;
/** Milliseconds in which the last outputs come after the turn's end. */
const LAST = 1_500;
/** Pixels by which the end may be out of sight, as it is while something is drawn. */
const NEAR = 48;
const INPUTS = ['wheel', 'touchmove', 'keydown', 'pointerdown', 'pointermove'] as const;

/** Follows one cell of a notebook at a time: the one that began last. */
export class Follow {
  constructor(private _panel: NotebookPanel) {
    this._button.classList.add('am-follow');
    this._button.title = trans.__('Show the newest output of the agent, and keep it in sight');
    this._button.hidden = true;
    this._resized = new ResizeObserver(() => this._keep());
  }

  /** Follow a cell whose agent begins its work, if the reader sees it now; again where it was moved. */
  begin(id: string): void {
    const cell = findCell(this._panel, id)?.node;
    const isNew = !this._atWork.has(id);
    // The kernel tells of each cell at work again and again, and of several by turns.
    if (cell === undefined || !(isNew || (id === this._followed && cell !== this._cell))) {
      return;
    }
    this._atWork.add(id);
    this._observe(id, cell);
    if (isNew) {
      const view = this._scroller!.getBoundingClientRect();
      const { top, bottom } = cell.getBoundingClientRect();
      this._follows = top < view.bottom && bottom > view.top;
    }
  }

  /** The turn has ended; its last outputs are still to come. */
  end(id: string): void {
    this._atWork.delete(id);
    if (id === this._followed) {
      this._button.remove(); // it leads to what is new, and the last outputs would show it again
      clearTimeout(this._ending);
      this._ending = setTimeout(() => this._leave(), LAST);
    }
  }

  dispose(): void {
    this._atWork.clear();
    this._leave();
  }

  private _observe(id: string, cell: HTMLElement): void {
    this._leave();
    this._followed = id;
    this._cell = cell;
    this._scroller = scrollerOf(cell);
    this._scrolledTo = this._scroller.scrollTop;
    for (const input of INPUTS) {
      this._scroller.addEventListener(input, this._onInput, { passive: true });
    }
    this._scroller.addEventListener('scroll', this._onScroll, { passive: true });
    this._panel.node.append(this._button);
    this._resized.observe(cell);
    this._resized.observe(cell.parentElement ?? cell); // cells above push it out of sight
  }

  private _leave(): void {
    clearTimeout(this._ending);
    this._ending = undefined;
    this._resized.disconnect();
    for (const input of INPUTS) {
      this._scroller?.removeEventListener(input, this._onInput);
    }
    this._scroller?.removeEventListener('scroll', this._onScroll);
    this._button.remove();
    this._button.hidden = true;
    this._cell = this._scroller = this._followed = null;
  }

  /** Pixels of the cell below what is in sight. */
  private get _below(): number {
    if (this._cell === null || this._scroller === null) {
      return 0;
    }
    return this._cell.getBoundingClientRect().bottom - this._scroller.getBoundingClientRect().bottom;
  }

  private _keep(): void {
    // Who answers a question or reads with the keyboard keeps what has the focus.
    const focus = document.activeElement;
    const reads = focus !== null && this._cell?.querySelector('.jp-OutputArea')?.contains(focus);
    if (this._follows && !reads && this._below > 0 && this._scroller !== null) {
      this._scroller.scrollTop += this._below;
      this._scrolledTo = this._scroller.scrollTop;
    } else if (!this._follows) {
      this._button.hidden = this._below <= NEAR;
    }
  }

  private _resume(): void {
    this._follows = true;
    this._button.hidden = true;
    this._keep();
    this._panel.content.activate();
  }

  private _onInput = (event: Event): void => {
    if (event.type !== 'pointermove' || (event as PointerEvent).buttons > 0) {
      this._inputAt = performance.now();
    }
  };

  private _onScroll = (): void => {
    const before = this._scrolledTo;
    this._scrolledTo = this._scroller?.scrollTop ?? 0;
    const near = this._below <= NEAR;
    // Down go our own scrolls, too, and JupyterLab's to the next cell: meanwhile the cell has grown.
    if (performance.now() - this._inputAt < BY_READER && (near || this._scrolledTo < before)) {
      this._follows = near;
      this._button.hidden = near;
    }
  };

  private _button = makeButton(`↓ ${trans.__('Follow')}`, '', () => this._resume());
  private _resized: ResizeObserver;
  private _ending: ReturnType<typeof setTimeout> | undefined;
  private _atWork = new Set<string>();
  private _followed: string | null = null;
  private _cell: HTMLElement | null = null;
  private _scroller: HTMLElement | null = null;
  private _follows = false;
  private _scrolledTo = 0;
  private _inputAt = -Infinity;
}

function scrollerOf(node: HTMLElement): HTMLElement {
  let parent = node.parentElement;
  while (parent !== null && !/auto|scroll/.test(getComputedStyle(parent).overflowY)) {
    parent = parent.parentElement;
  }
  return parent ?? document.documentElement;
}
