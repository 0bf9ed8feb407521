/** The order of a table's rows, as the person sorts them. */

import type { Cell } from './items.js';

export type Direction = 'none' | 'ascending' | 'descending';

/** What the next press of a column's button does. */
export const NEXT: Record<Direction, Direction> = {
  none: 'ascending',
  ascending: 'descending',
  descending: 'none'
};

/** Whether a column has nothing but numbers, which stand to the right. */
export function isNumeric(rows: Cell[][], column: number): boolean {
  let some = false;
  for (const row of rows) {
    const value = row[column] ?? null;
    if (value !== null && typeof value !== 'number') {
      return false;
    }
    some ||= value !== null;
  }
  return some;
}

/** The rows in order of a column; those without a value come last, whichever the direction. */
export function sortRows(rows: Cell[][], column: number, direction: Direction): Cell[][] {
  if (direction === 'none') {
    return rows;
  }
  const sign = direction === 'ascending' ? 1 : -1;
  return [...rows].sort((one, other) => {
    const [a, b] = [one[column] ?? null, other[column] ?? null];
    if (a === null || b === null) {
      return Number(a === null) - Number(b === null);
    }
    return sign * compare(a, b);
  });
}

function compare(a: Exclude<Cell, null>, b: Exclude<Cell, null>): number {
  if (typeof a === 'string' || typeof b === 'string') {
    return COLLATOR.compare(String(a), String(b));
  }
  return Number(a) - Number(b);
}

const COLLATOR = new Intl.Collator();
