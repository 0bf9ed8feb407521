/** What an agent cell's first line says of the options that the bar shows, and the line rewritten. */

import { wordsOf } from './cell_text.js';

export type OptionName = 'model' | 'approval' | 'name';

interface Flag {
  long: string;
  /** Characters of its shortest beginning, which the kernel takes for it. */
  least: number;
  short?: string;
}

const FLAGS: { [name in OptionName]: Flag } = {
  model: { long: '--model', least: 4, short: '-m' },
  approval: { long: '--approval', least: 4 },
  name: { long: '--name', least: 4 }
};

interface Place {
  from: number;
  to: number;
}

/** An option as it is given: where it stands as a whole, and its value, if it has one. */
interface Given extends Place {
  value: Place | null;
}

/** What the first line says of an option; null where it says nothing. */
export function optionIn(source: string, name: OptionName): string | null {
  const value = givenIn(source, name).pop()?.value; // the kernel refuses more than one
  return value ? source.slice(value.from, value.to).replace(/^(["'])(.*)\1$/, '$2') : null;
}

/** The text with an option of this value, or with none; all else is as it was. */
export function withOption(source: string, name: OptionName, value: string | null): string {
  const given = givenIn(source, name);
  const put = (from: number, to: number, text: string): string =>
    source.slice(0, from) + text + source.slice(to);
  if (value === null) {
    for (const { from, to } of given.reverse()) {
      source = put(source.slice(0, from).trimEnd().length, to, '');
    }
    return source;
  }
  const last = given.pop();
  if (last !== undefined) {
    const { from, to } = last.value ?? { from: last.to, to: last.to };
    return put(from, to, last.value ? value : ` ${value}`);
  }
  const [magic] = wordsOf(source);
  return magic ? put(magic.to, magic.to, ` ${FLAGS[name].long} ${value}`) : source;
}

/** Whether a value can be written as one word of the line. */
export function isWord(value: string): boolean {
  return /^[^\s"'-]\S*$/.test(value);
}

function givenIn(source: string, name: OptionName): Given[] {
  const words = wordsOf(source);
  return words.flatMap(({ from, to, text }, index): Given[] => {
    const start = valueStart(text, FLAGS[name]);
    if (index === 0 || start === null) {
      return [];
    }
    if (start < text.length || text.endsWith('=')) {
      return [{ from, to, value: { from: from + start, to } }];
    }
    const next = words[index + 1];
    return next === undefined || isOption(next.text)
      ? [{ from, to, value: null }]
      : [{ from, to: next.to, value: next }];
  });
}

/** Where a value would begin in a word that gives an option; null where it is another word. */
function valueStart(word: string, { long, least, short }: Flag): number | null {
  const flag = word.split('=', 1)[0]!;
  if (flag.length >= least && long.startsWith(flag)) {
    return flag.length + (flag === word ? 0 : 1);
  }
  if (short !== undefined && word.startsWith(short)) {
    return short.length + (word[short.length] === '=' ? 1 : 0);
  }
  return null;
}

/** A dash alone and a negative number are values. */
function isOption(word: string): boolean {
  return /^-./.test(word) && !/^-(\d+|\d*\.\d+)$/.test(word);
}
