// Law: text of others is read in linear time; the page stands still while it is read.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codePieces, endsInMention, isPrompt } from '../lib/prompts/cell_text.js';
import { optionIn, withOption } from '../lib/prompts/first_line.js';
import { colouredRuns } from '../lib/render/colours.js';
import { takeOutMath } from '../lib/render/markdown.js';
import { diffLines, fenced, showInvisible, stripAnsi } from '../lib/text/plain.js';

const CHARACTERS = 100_000;
/** Milliseconds of the processor; in linear time each text takes some. */
const MOST = 1_000;

const PIECES = {
  '`': 'back-ticks',
  '` ': 'back-ticks apart',
  '``` ': 'fences in a line',
  '```\n': 'fences',
  '~~~\n````\n': 'fences of two kinds',
  '$$': 'dollars',
  '$$ x': 'displays',
  '$x ': 'dollars apart',
  '\\[ ': 'brackets',
  '\\( ': 'parentheses',
  '\\': 'backslashes',
  'mermaid ': 'names of diagrams',
  '{{': 'braces',
  '{{ x }': 'expressions without an end',
  '@': 'mentions',
  '"': 'quotes',
  "' ": 'quotes apart',
  '\x1b[': 'colours',
  '\x1b]0;': 'titles',
  '\r': 'carriage returns',
  'a\r': 'progress',
  '\u202E': 'directions',
  '@@ -1 +1 @@\n': 'hunks',
  ' ': 'spaces',
  '\n': 'lines',
  '%%time\n': 'magics'
};
const READERS = {
  takeOutMath,
  codePieces: text => codePieces(`%%agent ${text}`) && codePieces(`%%agent\n${text}`),
  isPrompt,
  endsInMention: text => endsInMention(`%%agent\n${text}`, text.length),
  optionIn: text => optionIn(`%%agent ${text}`, 'model'),
  withOption: text => withOption(`%%agent ${text}`, 'model', 'x'),
  colouredRuns,
  stripAnsi,
  showInvisible,
  diffLines,
  fenced: text => fenced(text, 'python')
};

for (const [name, read] of Object.entries(READERS)) {
  test(`${name} takes linear time`, () => {
    for (const [piece, words] of Object.entries(PIECES)) {
      const text = `${piece.repeat(CHARACTERS / piece.length)}x`;
      const before = process.cpuUsage();
      read(text);
      const { user } = process.cpuUsage(before);
      assert.ok(user / 1_000 < MOST, `${words}: ${user / 1_000} ms`);
    }
  });
}
