import assert from 'node:assert/strict';
import { test } from 'node:test';

import { colouredRuns } from '../../lib/render/colours.js';

const looks = text => colouredRuns(text).map(({ text, look }) => [text, look.fg, look.bg]);

test('text without sequences is one plain run', () => {
  assert.deepEqual(colouredRuns('<b>a</b>\n'), [
    { text: '<b>a</b>\n', look: { fg: null, bg: null, on: [] } }
  ]);
  assert.deepEqual(colouredRuns(''), []);
});

test('the sixteen colours, and their end', () => {
  assert.deepEqual(looks('\x1b[31mr\x1b[39mp\x1b[92;44mg\x1b[0mp\x1b[mq'), [
    ['r', 1, null],
    ['p', null, null],
    ['g', 10, 4],
    ['p', null, null],
    ['q', null, null]
  ]);
});

test('switches go on once and off by name', () => {
  const runs = colouredRuns('\x1b[1;4ma\x1b[1mb\x1b[22mc\x1b[24md');
  assert.deepEqual(runs.map(run => run.look.on), [
    ['bold', 'underline'],
    ['underline', 'bold'],
    ['underline'],
    []
  ]);
});

test('other colours become CSS, what is no colour none', () => {
  assert.deepEqual(
    looks('\x1b[38;5;9ma\x1b[38;5;196mb\x1b[38;5;244mc\x1b[48;2;1;2;3md\x1b[38;2;1;2;999me').map(
      ([, fg, bg]) => [fg, bg]
    ),
    [
      [9, null],
      ['rgb(255, 0, 0)', null],
      ['rgb(128, 128, 128)', null],
      ['rgb(128, 128, 128)', 'rgb(1, 2, 3)'],
      [null, 'rgb(1, 2, 3)']
    ]
  );
});

test('sequences that are no colours leave nothing behind', () => {
  assert.deepEqual(looks('\x1b[2Ja\x1b]0;title\x07b\x1b[38;5;;;;mc'), [
    ['ab', null, null],
    ['c', null, null]
  ]);
});
