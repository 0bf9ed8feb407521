import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

import { countFiles } from '../../lib/text/plain.js';
import { trans, translate } from '../../lib/text/translation.js';

// What the code gives to be drawn: a label, a hint, the text of an element.
const DRAWN =
  /(?:textContent|title|placeholder|label) ?[=:] ['`]([^'`]*)|'aria-label', ['`]([^'`]*)|\b(?:make|fold|button|makeButton)\([^()]*['`]([A-Z][^'`]*)['`]/g;

test('words that people read go through the translation', () => {
  const found = [];
  const folder = new URL('../../src/', import.meta.url);
  const names = readdirSync(folder, { recursive: true }).filter(name => name.endsWith('.ts'));
  assert.ok(names.length > 40);
  for (const name of names) {
    const source = readFileSync(new URL(name, folder), 'utf8');
    for (const match of source.matchAll(DRAWN)) {
      const words = (match[1] ?? match[2] ?? match[3]).replace(/\$\{[^}]*\}?/g, '');
      if (/[A-Za-z]{3}/.test(words)) {
        found.push(`${name}: ${words}`);
      }
    }
  }
  assert.deepEqual(found, []);
});

test('they are read in the language of the page', () => {
  assert.equal(countFiles(['a', 'b/']), '1 file and 1 folder');
  const words = { '%2 file': 'une', '%2 folder': 'un', '%1 and %2': '%1 et %2' };
  translate({ __: (text, ...v) => words[text].replace('%1', v[0]).replace('%2', v[1]), _n: one => words[one] });
  assert.equal(countFiles(['a', 'b/']), 'une et un');
  assert.equal(trans._n('%2 file', '%2 files', 1), 'une');
});
