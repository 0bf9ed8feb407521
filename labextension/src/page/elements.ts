/** Makes elements whose words are always plain text; finds what is ours in a notebook. */

import type { NotebookPanel } from '@jupyterlab/notebook';

/** A question that waits for its answer. */
export const OPEN_QUESTION = '.agm-question:not([data-answered])';

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  text = ''
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** @param about - what it acts on, for those who hear the button without its surroundings. */
export function makeButton(label: string, about: string, act: () => void): HTMLButtonElement {
  const made = make('button', 'am-button', label);
  made.type = 'button';
  made.addEventListener('click', act);
  if (about) {
    made.setAttribute('aria-label', `${label}: ${about}`);
  }
  return made;
}

export function makeButtons(...made: HTMLElement[]): HTMLElement {
  const line = make('div', 'am-buttons');
  line.append(...made);
  return line;
}

/** Text in which spaces count; the keyboard can scroll it. */
export function drawPre(text: string, label: string): HTMLElement {
  const pre = make('pre', 'am-pre', text);
  pre.tabIndex = 0;
  pre.setAttribute('role', 'group');
  pre.setAttribute('aria-label', label);
  return pre;
}

/**
 * What unfolds when somebody presses its head.
 *
 * @param key - the same after an update, so that a fold the person opened stays open.
 */
export function fold(
  key: string,
  head: string | HTMLElement[],
  body: HTMLElement,
  open = false
): HTMLDetailsElement {
  const details = make('details', '');
  details.dataset.key = key;
  details.dataset.initial = String(open);
  details.open = open;
  const summary = make('summary', '');
  summary.append(...head);
  details.append(summary, body);
  return details;
}

/** The cell of an id as it is drawn. */
export function findCell(
  { content }: NotebookPanel,
  id: string
): NotebookPanel['content']['widgets'][number] | undefined {
  return content.widgets.find(({ model }) => model.id === id);
}

/** A list that keeps its rows, and the focus in them, as long as what they show stays the same. */
export class Rows<T> {
  readonly node = make('ul', 'am-panel-rows');

  /**
   * @param _keyOf - what makes an item the same one as before.
   * @param _draw - fills the row of an item.
   */
  constructor(
    private _keyOf: (item: T) => string,
    private _draw: (item: T, row: HTMLLIElement) => void
  ) {}

  /** Show these items; return whether some came or went. */
  show(items: T[], signatureOf: (item: T) => string): boolean {
    const before = [...this._rows.keys()].join('\n');
    const rows = new Map(items.map(item => [this._keyOf(item), this._rowOf(item, signatureOf(item))]));
    const keys = [...rows.keys()];
    if (keys.join('\n') !== before) {
      const focused = [...this._rows].find(([, { row }]) => row.contains(document.activeElement));
      const place = focused ? [...this._rows.keys()].indexOf(focused[0]) : -1;
      this._rows.forEach(({ row }, key) => rows.has(key) || row.remove());
      // Only what is out of place is moved: what is moved loses the focus.
      [...rows.values()].forEach(({ row }, index) => {
        if (this.node.children[index] !== row) {
          this.node.insertBefore(row, this.node.children[index] ?? null);
        }
      });
      if (focused && !rows.has(focused[0])) {
        const next = rows.get(keys[Math.min(place, keys.length - 1)] ?? '')?.row;
        (next?.querySelector('button') ?? this.node).focus();
      }
    }
    this._rows = rows;
    return keys.join('\n') !== before;
  }

  /** Draw a row anew although its item is the same. */
  redraw(item: T): void {
    const shown = this._rows.get(this._keyOf(item));
    if (shown) {
      this._fill(shown.row, item);
    }
  }

  private _rowOf(item: T, signature: string): { row: HTMLLIElement; signature: string } {
    const shown = this._rows.get(this._keyOf(item));
    if (shown?.signature === signature) {
      return shown;
    }
    const row = shown?.row ?? make('li', 'am-panel-row');
    this._fill(row, item);
    return { row, signature };
  }

  private _fill(row: HTMLLIElement, item: T): void {
    const focused = row.contains(document.activeElement) ? document.activeElement : null;
    const index = focused ? [...row.querySelectorAll('button, input')].indexOf(focused) : -1;
    row.replaceChildren();
    this._draw(item, row);
    const again = row.querySelectorAll<HTMLElement>('button, input')[index];
    if (focused) {
      (again ?? row.querySelector('button'))?.focus();
    }
  }

  private _rows = new Map<string, { row: HTMLLIElement; signature: string }>();
}
