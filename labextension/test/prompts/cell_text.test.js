import assert from 'node:assert/strict';
import { test } from 'node:test';

import { apart, codePieces, endsInMention, isPrompt } from '../../lib/prompts/cell_text.js';

const code = source => codePieces(source).map(({ from, to, kind }) => [kind, source.slice(from, to)]);

test('a cell is a prompt by its first line, also below another cell magic', () => {
  const prompts = ['%%agent', '%%agent -m x\nGo.', '\n\n%%agent\n', '%%time\n%%agent\nGo.'];
  assert.deepEqual(prompts.map(isPrompt), [true, true, true, true]);
  const others = ['', 'x = 1\n%%agent', '%%agents', '%agent status', '# %%agent', '%%time\nx'];
  assert.deepEqual(others.map(isPrompt), others.map(() => false));
});

test('options and expressions are code, and nothing else is', () => {
  const source = '%%agent --into "my x" -m gpt\nLook at {{ df.head() }}, not \\{{this}} --so, \\{{ {{x}}.';
  assert.deepEqual(code(source), [
    ['magic', '%%agent'],
    ['option', '--into'],
    ['value', '"my x"'],
    ['option', '-m'],
    ['value', 'gpt'],
    ['expression', '{{ df.head() }}'],
    ['expression', '{{x}}']
  ]);
  assert.deepEqual(codePieces('x = "{{df}}"'), []);
});

test('a mention is offered where one stands, and not in the middle of a word', () => {
  const at = text => endsInMention(`%%agent -m @x\n${text}`, `%%agent -m @x\n${text}`.length);
  assert.deepEqual(['@', 'Sum @sal', '(@data/', '/', '/mon'].map(at), Array(5).fill(true));
  assert.deepEqual(['', 'me@home', 'a @b c', 'and/or', '{{@x}}'].map(at), Array(5).fill(false));
  assert.equal(endsInMention('%%agent @x', 10), false);
});

test('what is inserted stands apart from the words beside it, and from what was inserted before', () => {
  const added = shown => {
    let [before, after] = shown.split('|');
    for (const text of ['a.csv', '![](b.png)', 'c.csv']) {
      before += apart(text, before, after);
    }
    return `${before}|${after}`;
  };
  const all = 'a.csv ![](b.png) c.csv';
  const table = {
    '|': `${all}|`,
    'Sum |': `Sum ${all}|`,
    'Sum|': `Sum ${all}|`,
    'Sum\n|': `Sum\n${all}|`,
    'Sum\t|\nof': `Sum\t${all}|\nof`,
    'Sum |of': `Sum ${all} |of`,
    'Sum | of': `Sum ${all}| of`,
    'Sum |.': `Sum ${all}|.`,
    'See |![](x.png)': `See ${all} |![](x.png)`
  };
  assert.deepEqual(Object.keys(table).map(added), Object.values(table));
});
