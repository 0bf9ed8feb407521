/** The smallest change that makes one text of another, so that what is around it stays put. */

export interface TextChange {
  start: number;
  end: number;
  value: string;
}

/** Replace `before` from `start` to `end` by `value`, and it is `after`. */
export function smallestChange(before: string, after: string): TextChange {
  const most = Math.min(before.length, after.length);
  let start = 0;
  while (start < most && before[start] === after[start]) {
    start++;
  }
  let tail = 0;
  while (
    tail < most - start &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) {
    tail++;
  }
  // Half a character (of two code units) must not be replaced alone.
  if (start > 0 && isHigh(before.charCodeAt(start - 1))) {
    start--;
  }
  if (tail > 0 && isLow(before.charCodeAt(before.length - tail))) {
    tail--;
  }
  return { start, end: before.length - tail, value: after.slice(start, after.length - tail) };
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}
