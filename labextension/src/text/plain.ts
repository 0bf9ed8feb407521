/** Text as it may be shown: no escape sequences, nothing invisible, and the lines of a diff. */

import { written, markLookAlikes } from './look_alikes.js';
import { trans } from './translation.js';

// CSI and OSC sequences, then the two-character ones.
const ANSI = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;

// A reader must see what a machine reads: what is drawn as nothing, or turns text around; and spaces
// that are none to a machine, but in prose, where many languages have them.
const HIDDEN = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const INVISIBLE = new RegExp(`${HIDDEN.source}|(?! )\\p{Zs}`, 'gu');

// More marks on one letter are drawn over what stands above and below, such as a button.
const STACK = /(?<=\p{M}{4})\p{M}/gu;

/** What models can see, and pages show. */
export const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

export type DiffLine = { kind: 'add' | 'remove' | 'head' | 'same'; text: string };

/** Terminal output without colours and cursor movements; what "\r" overwrote is left out. */
export function stripAnsi(text: string): string {
  const lines = text.replace(ANSI, '').replace(/(?<!\r)\r+\n/g, '\n').split('\n');
  return lines.map(line => line.slice(line.lastIndexOf('\r', line.length - 2) + 1)).join('\n');
}

/** Control, bidirectional and zero-width characters written out, such as ⟨U+202E⟩; look-alikes marked. */
export function showInvisible(text: string): string {
  return markLookAlikes(text.replace(INVISIBLE, written).replace(STACK, written));
}

/** The same of prose, in which spaces of all kinds stay. */
export function showHidden(text: string): string {
  return markLookAlikes(text.replace(HIDDEN, written).replace(STACK, written));
}

/** Lines that `text` takes; a newline at the end starts no further line. */
export function countLines(text: string): number {
  return text === '' ? 0 : text.replace(/\n$/, '').split('\n').length;
}

/** "1 file and 2 folders"; the paths of folders end with a slash. */
export function countFiles(paths: string[]): string {
  const folders = paths.filter(path => path.endsWith('/')).length;
  const files = paths.length - folders;
  const words = trans._n('%2 file', '%2 files', files, numeral(files));
  if (folders === 0) {
    return words;
  }
  const others = trans._n('%2 folder', '%2 folders', folders, numeral(folders));
  return files === 0 ? others : trans.__('%1 and %2', words, others);
}

// As they are written: parsed numbers would lose digits, and of two equal names the first.
const TOKEN = /"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const DEEPER: { [token: string]: number | undefined } = { '{': 1, '[': 1, '}': -1, ']': -1 };

/** The tokens of a JSON text, with as few escapes in strings as there can be; none of any other text. */
function tokensOf(text: string): string[] {
  try {
    JSON.parse(text);
  } catch {
    return [];
  }
  const tokens = text.match(TOKEN) ?? [];
  return tokens.map(token => (token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token));
}

/** JSON text with one field per line; any other text as it is. */
export function prettyArguments(text: string): string {
  let depth = 0;
  let before = '';
  const parts = tokensOf(text).map(token => {
    const deeper = DEEPER[token] ?? 0;
    depth += Math.min(deeper, 0);
    const isInside = DEEPER[before] === 1 ? deeper >= 0 : before === ',' || deeper < 0;
    const space = isInside ? `\n${'  '.repeat(depth)}` : before === ':' ? ' ' : '';
    depth += Math.max(deeper, 0);
    before = token;
    return space + token;
  });
  return parts.join('') || text;
}

/** The code of a call whose arguments are `{"code": …}`, and its other arguments, "" if none. */
export function codeOf(args: string): { code: string; rest: string } | null {
  let member: string[] = [];
  const members = [member];
  let depth = 0;
  for (const token of tokensOf(args).slice(1, -1)) {
    depth += DEEPER[token] ?? 0;
    if (depth === 0 && token === ',') {
      members.push((member = []));
    } else {
      member.push(token);
    }
  }
  const [code, ...more] = members.filter(([name]) => name === '"code"');
  if (code?.[2]?.startsWith('"') !== true || more.length > 0) {
    return null;
  }
  const rest = members.filter(each => each !== code).map(each => each.join(''));
  return { code: String(JSON.parse(code[2]!)), rest: rest.length > 0 ? `{${rest.join(',')}}` : '' };
}

/** The script of a command's call: its text, or what a shell is to run; "" for other commands. */
export function scriptOf(args: string): string {
  try {
    const { command, cmd = command } = JSON.parse(args) as Record<string, unknown>;
    const [shell, option, script, ...more] = Array.isArray(cmd) ? cmd.map(String) : ['sh', '-c', cmd];
    const isScript = /(^|\/)(ba|da|z)?sh$/.test(shell!) && /^-l?c$/.test(option!) && more.length === 0;
    return isScript && typeof script === 'string' ? script : '';
  } catch {
    return '';
  }
}

/** `code` as a Markdown block with a fence that nothing inside can close. */
export function fenced(code: string, language: string): string {
  const runs = code.match(/`+/g) ?? [];
  const fence = '`'.repeat(Math.max(3, ...runs.map(run => run.length + 1)));
  return `${fence}${language}\n${code}\n${fence}`;
}

/** The lines of a unified diff, each with what it means. */
export function diffLines(diff: string): DiffLine[] {
  // What the open hunk still has to come: only by counting is a removed line "-- x", which
  // stands there as "--- x", told from the head of the next file.
  let before = 0;
  let after = 0;
  return diff
    .replace(/\n$/, '')
    .split('\n')
    .map(text => {
      if (before <= 0 && after <= 0) {
        const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(text);
        before = hunk ? Number(hunk[1] ?? 1) : 0;
        after = hunk ? Number(hunk[2] ?? 1) : 0;
        return { kind: 'head', text };
      }
      const mark = text[0];
      before -= mark === '+' || mark === '\\' ? 0 : 1;
      after -= mark === '-' || mark === '\\' ? 0 : 1;
      const kinds = { '+': 'add', '-': 'remove', '\\': 'head' } as const;
      return { kind: kinds[mark as keyof typeof kinds] ?? 'same', text };
    });
}

/** "+3 −1", of a diff without a head. */
export function countChanges(diff: string): string {
  const lines = diff.split('\n');
  const count = (sign: string): string => numeral(lines.filter(line => line.startsWith(sign)).length);
  return `+${count('+')} −${count('-')}`;
}

/** A number as the person's language writes it. */
export function numeral(value: number): string {
  return value.toLocaleString();
}

/** Money as the person's language writes it; small sums with more digits. */
export function dollars(value: number): string {
  const digits = value > 0 && value < 0.1 ? 4 : 2;
  const style = { style: 'currency', currency: 'USD', minimumFractionDigits: digits } as const;
  return value.toLocaleString(undefined, { ...style, maximumFractionDigits: digits });
}
