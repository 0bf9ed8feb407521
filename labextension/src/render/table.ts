/** Draws the first rows of a table: sortable, scrollable by keys, more rows on demand. */

import { make, makeButton } from '../page/elements.js';
import { numeral, showHidden } from '../text/plain.js';
import { trans } from '../text/translation.js';
import type { Cell, TableItem } from './items.js';
import { isNumeric, NEXT, sortRows, type Direction } from './table_rows.js';

/** Rows that are drawn at first, and more at each press: a thousand rows of many columns take long. */
const SOME = 50;
const MORE = 200;
const ARROWS: Record<Direction, string> = { none: '', ascending: ' ▲', descending: ' ▼' };

export function drawTable(item: TableItem): HTMLElement {
  const box = make('div', 'am-table');
  const size = describeSize(item);
  const scroller = make('div', 'am-table-scroll');
  // What scrolls must be reachable by keys.
  scroller.tabIndex = 0;
  scroller.setAttribute('role', 'group');
  scroller.setAttribute('aria-label', trans.__('Table of %1', size));
  const table = make('table', '');
  const body = make('tbody', '');
  const numeric = item.columns.map((_, column) => isNumeric(item.rows, column));
  let order = item.rows;
  let drawn = 0;
  const add = (count: number): void => {
    const until = Math.min(drawn + count, order.length);
    body.append(...order.slice(drawn, until).map(row => drawRow(row, numeric)));
    drawn = until;
    more.hidden = drawn >= order.length;
    const next = Math.min(MORE, order.length - drawn);
    more.textContent = trans._n('Show %2 more row', 'Show %2 more rows', next, numeral(next));
  };
  const sort = (column: number, direction: Direction): void => {
    order = sortRows(item.rows, column, direction);
    const count = Math.max(SOME, drawn);
    drawn = 0;
    body.replaceChildren();
    add(count);
  };
  const more = makeButton('', '', () => {
    add(MORE);
    if (more.hidden) {
      scroller.focus();
    }
  });
  table.append(drawHead(item, numeric, sort), body);
  add(SOME);
  scroller.append(table);
  box.append(make('div', 'am-table-size', size), scroller, more);
  return box;
}

function describeSize({ columns, rows, total, width }: TableItem): string {
  const inRows = (count: number): string => trans._n('%2 row', '%2 rows', count, numeral(count));
  const inColumns = (count: number): string =>
    trans._n('%2 column', '%2 columns', count, numeral(count));
  const words = [inRows(total), inColumns(width)];
  if (rows.length < total) {
    words.push(trans.__('the first %1 here', inRows(rows.length)));
  }
  if (columns.length < width) {
    words.push(trans.__('the first %1 here', inColumns(columns.length)));
  }
  return words.join(', ');
}

function drawHead(
  { columns }: TableItem,
  numeric: boolean[],
  sort: (column: number, direction: Direction) => void
): HTMLElement {
  const line = make('tr', '');
  const heads = columns.map(({ name, type }, column) => {
    const head = make('th', numeric[column] ? 'am-number' : '');
    head.scope = 'col';
    head.ariaSort = 'none';
    const arrow = make('span', '');
    arrow.setAttribute('aria-hidden', 'true');
    const shown = showHidden(name) || trans.__('(no name)');
    const button = makeButton(shown, '', () => {
      const direction = NEXT[head.ariaSort as Direction];
      for (const each of heads) {
        each.ariaSort = 'none';
        each.querySelector('[aria-hidden]')!.textContent = '';
      }
      head.ariaSort = direction;
      arrow.textContent = ARROWS[direction];
      sort(column, direction);
    });
    button.className = 'am-table-sort';
    button.append(arrow, make('span', 'am-table-type', showHidden(type)));
    head.append(button);
    return head;
  });
  line.append(...heads);
  const part = make('thead', '');
  part.append(line);
  return part;
}

function drawRow(row: Cell[], numeric: boolean[]): HTMLElement {
  const line = make('tr', '');
  line.append(
    ...numeric.map((isNumber, column) => {
      const value = row[column] ?? null;
      const words = value === null ? '–' : showHidden(String(value));
      return make('td', value === null ? 'am-none' : isNumber ? 'am-number' : '', words);
    })
  );
  return line;
}
