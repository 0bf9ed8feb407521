import assert from 'node:assert/strict';
import { test } from 'node:test';

import { makePrompt } from '../../lib/agents/failures.js';
import { news, summary, Work } from '../../lib/kernel/work.js';

const panelOf = (id, path) => ({ id, context: { path } });
const panel = panelOf('p', 'folder/sales.ipynb');
const foot = (cell, questions, elapsed = 0) => ({ cell, questions, elapsed, doing: 'Runs shell' });

function follow() {
  const work = new Work();
  const told = [];
  work.changed.connect((_, change) => told.push(news(change)));
  return { work, told };
}

test('a question is told once, and when there is another', () => {
  const { work, told } = follow();
  for (const questions of [0, 1, 1, 2, 0]) {
    work.show(panel, foot('a', questions));
  }
  const words = 'The agent in sales.ipynb waits for your answer.';
  assert.deepEqual(told, ['', words, '', words, '']);
});

test('the end of a long run is told, that of a short one is not', () => {
  const { work, told } = follow();
  work.show(panel, foot('long', 0, 31));
  work.show(panel, foot('short', 0, 29));
  work.end(panel, 'long');
  work.end(panel, 'short');
  work.end(panel, 'unknown');
  assert.deepEqual(told, ['', '', 'The agent in sales.ipynb has ended its turn.', '']);
});

test('the status bar counts agents and questions', () => {
  const { work } = follow();
  const seen = [summary(work)];
  work.show(panel, foot('a', 0));
  seen.push(summary(work));
  work.show(panelOf('q', 'b'), foot('b', 2));
  seen.push(summary(work));
  work.leave(panel);
  seen.push(summary(work));
  assert.deepEqual(seen, [
    '',
    '1 agent at work',
    '2 agents at work · 2 questions wait for you',
    '1 agent at work · 2 questions wait for you'
  ]);
});

test('a sub-agent that works on after its cell is counted, and told of by itself', () => {
  const { work, told } = follow();
  work.show(panel, foot('a', 0, 31));
  work.end(panel, 'a');
  work.show(panel, { cell: 'a', doing: 'explore-1: looks', elapsed: 5 }, 'explore');
  assert.equal(summary(work), '1 agent at work');
  work.show(panel, foot('a', 1));
  assert.equal(summary(work), '2 agents at work · 1 question waits for you');
  work.end(panel, 'a', 'explore');
  assert.deepEqual(work.runs.map(run => run.agent), ['']);
  assert.equal(told.filter(Boolean).length, 2);
});

test('a copy of a notebook, whose cells have the same ids, has runs of its own', () => {
  const { work, told } = follow();
  const copy = panelOf('q', 'folder/sales-Copy1.ipynb');
  work.show(panel, foot('a', 1, 31));
  work.show(copy, foot('a', 1, 31));
  work.end(copy, 'a');
  assert.deepEqual(work.runs.map(run => run.panel), [panel]);
  assert.deepEqual(told, [
    'The agent in sales.ipynb waits for your answer.',
    'The agent in sales-Copy1.ipynb waits for your answer.',
    'The agent in sales-Copy1.ipynb has ended its turn.'
  ]);
});

test('with a notebook its questions go, so that nothing goes on asking for them', () => {
  const { work } = follow();
  work.show(panel, foot('a', 1));
  const seen = [];
  work.changed.connect((_, { run, before }) => seen.push([before, run.questions]));
  work.leave(panel);
  assert.deepEqual(seen, [[1, 0]]);
});

test('an error of a saved notebook may lack everything', () => {
  for (const traceback of [undefined, null, 'text', [1, null], {}]) {
    assert.ok(makePrompt('x', { output_type: 'error', traceback }, []).startsWith('%%agent'));
  }
});

test('a prompt about an error holds nothing that is evaluated, and no open fence', () => {
  const source = 'x = "{{a}}"\n```\n`````';
  const traceback = ['\u001b[31mValueError\u001b[0m', ...Array(60).fill('line {{b}}')];
  const prompt = makePrompt(source, { output_type: 'error', traceback }, []);
  assert.ok(prompt.startsWith('%%agent\nThis cell failed.'));
  assert.ok(prompt.includes('``````python\nx = "\\{{a}}"'));
  assert.equal(prompt.match(/\{\{/g).length, prompt.match(/\\\{\{/g).length);
  assert.equal(prompt.match(/line/g).length, 40);
  assert.ok(!prompt.includes('\u001b'));
});

test('lines of a prompt about an error end in newlines, as the editor counts them', () => {
  const error = { output_type: 'error', traceback: ['a\r\nb', 'c\r'] };
  const prompt = makePrompt('x = 1\r\ny\rz', error, []);
  assert.ok(prompt.includes('```python\nx = 1\ny\nz\n```') && prompt.includes('a\nb\nc\n```'));
  assert.ok(!prompt.includes('\r'));
});

test('the variables that the cell uses are shown by reference, other names are not', () => {
  const error = { output_type: 'error', traceback: ['KeyError'] };
  const prompt = makePrompt('df.groupby("größe") + n', error, ['df', 'n', 'd', 'other', 'größe']);
  assert.ok(prompt.endsWith('- `df`: {{df}}\n- `n`: {{n}}\n- `größe`: {{größe}}\n'));
});
