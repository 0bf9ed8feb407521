/** What is looked at of an agent cell's text: its first line with the options, `{{expressions}}`. */

/** A stretch of text and what it is. */
export interface Piece {
  from: number;
  to: number;
  kind: 'magic' | 'option' | 'value' | 'expression';
}

/** Cell magics such as %%time may stand above; an agent's is then below them. */
const FIRST = /^\s*(?:%%(?!agent\b)\w[^\n]*\n)*(%%agent(?!\S)[^\n]*)/;
/** As the kernel divides the line: a space of another kind is part of a word. */
const WORDS = /"[^"]*"|'[^']*'|[^ \t\r]+/g;
const EXPRESSION = /\\\{\{|\{\{[\s\S]+?\}\}/g;

/** Whether a cell of this text is an agent's: its text is prose then. */
export function isPrompt(source: string): boolean {
  return FIRST.test(source);
}

/** Where the words of an agent cell's first line stand, `%%agent` first; none in other cells. */
export function wordsOf(source: string): { from: number; to: number; text: string }[] {
  const first = FIRST.exec(source);
  const line = first === null ? 0 : first[0].length - first[1]!.length;
  return [...(first?.[1] ?? '').matchAll(WORDS)].map(({ 0: text, index }) => ({
    from: line + index,
    to: line + index + text.length,
    text
  }));
}

/** The pieces of an agent cell's text that are code, in order. */
export function codePieces(source: string): Piece[] {
  const first = FIRST.exec(source);
  if (first === null) {
    return [];
  }
  const end = first[0].length;
  const pieces = wordsOf(source).map(({ from, to, text }, index): Piece => {
    const kind = index === 0 ? 'magic' : text.startsWith('-') ? 'option' : 'value';
    return { from, to, kind };
  });
  // Behind the last braces nothing ends: looking on from each "{{" there would take long.
  const last = source.lastIndexOf('}}') + 2;
  for (const found of source.slice(end, Math.max(end, last)).matchAll(EXPRESSION)) {
    if (found[0] !== '\\{{') {
      const from = end + found.index;
      pieces.push({ from, to: from + found[0].length, kind: 'expression' });
    }
  }
  return pieces;
}

/** Whether the text before `offset` ends in a mention: of a variable, a file, a prompt. */
export function endsInMention(source: string, offset: number): boolean {
  const first = FIRST.exec(source);
  if (first === null || offset <= first[0].length) {
    return false;
  }
  const before = source.slice(first[0].length, offset);
  return /(?:^|[\s(["'`,;:])@[^\s@{}()[\]"'`]*$/.test(before) || /^\s*\/[\w-]*$/.test(before);
}

/** `text` with the spaces that keep it apart from the text before and after it. */
export function apart(text: string, before: string, after: string): string {
  return `${/\S$/.test(before) ? ' ' : ''}${text}${/^[\p{L}\p{N}!]/u.test(after) ? ' ' : ''}`;
}
