import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { isWord, optionIn, withOption } from '../../lib/prompts/first_line.js';

const LINES = JSON.parse(readFileSync(new URL('first_lines.json', import.meta.url), 'utf-8'));
const NAMES = ['model', 'approval', 'name'];

test('the bar reads the first line as the kernel does, of whose parser the table is', () => {
  for (const [source, said] of LINES) {
    const read = NAMES.map(name => [name, optionIn(source, name)]).filter(([, value]) => value !== null);
    assert.deepEqual(Object.fromEntries(read), said, source);
  }
});

test('an option that is written is read again, and the others are as they were', () => {
  for (const [source] of LINES) {
    for (const name of NAMES) {
      for (const value of ['never', null]) {
        const written = withOption(source, name, value);
        assert.equal(optionIn(written, name), value, source);
        for (const other of NAMES.filter(each => each !== name)) {
          assert.equal(optionIn(written, other), optionIn(source, other), source);
        }
        assert.equal(withOption(written, name, value), written);
      }
    }
  }
});

test('only the option itself is rewritten', () => {
  const cases = [
    ['%%agent', 'q', '%%agent --model q'],
    ['%%agent  \nGo.', 'q', '%%agent --model q  \nGo.'],
    ['%%agent\r\nGo.\r\n', 'q', '%%agent --model q\r\nGo.\r\n'],
    ['%%agent --model x\r\nGo.', 'q', '%%agent --model q\r\nGo.'],
    ['%%agent --model x\r\nGo.', null, '%%agent\r\nGo.'],
    ['\n%%time\n%%agent\n%%agent', 'q', '\n%%time\n%%agent --model q\n%%agent'],
    ['%%agent  --model   x  --new ', 'q', '%%agent  --model   q  --new '],
    ['%%agent  --model   x  --new ', null, '%%agent  --new '],
    ['%%agent --model=x --into "a b"', 'q', '%%agent --model=q --into "a b"'],
    ['%%agent --model="x" -o', 'q', '%%agent --model=q -o'],
    ['%%agent --model "x y" -o', 'q', '%%agent --model q -o'],
    ['%%agent -mx', 'q', '%%agent -mq'],
    ['%%agent -m=x', 'q', '%%agent -m=q'],
    ['%%agent --mod x', 'q', '%%agent --mod q'],
    ['%%agent -m x --new --model y', 'q', '%%agent -m x --new --model q'],
    ['%%agent -m x --new --model y\nGo.', null, '%%agent --new\nGo.'],
    ['%%agent --model', 'q', '%%agent --model q'],
    ['%%agent --model  ', 'q', '%%agent --model q  '],
    ['%%agent --model', null, '%%agent'],
    ['%%agent --model --new', 'q', '%%agent --model q --new'],
    ['%%agent --model --new', null, '%%agent --new'],
    ['%%agent --model=', 'q', '%%agent --model=q'],
    ['%%agent Tell me --so', 'q', '%%agent --model q Tell me --so'],
    ['%%agent --modell x', 'q', '%%agent --model q --modell x'],
    ['%%agent --unknown x # why', null, '%%agent --unknown x # why'],
    ['%%agent --into "a', 'q', '%%agent --model q --into "a'],
    ['x = 1', 'q', 'x = 1'],
    ['%%agents', 'q', '%%agents']
  ];
  for (const [source, value, after] of cases) {
    assert.equal(withOption(source, 'model', value), after, source);
  }
});

test('a value is offered only where it can stand as one word', () => {
  assert.deepEqual(['gpt-5.5', 'a/b:c', "it's"].map(isWord), [true, true, true]);
  assert.deepEqual(['', 'a b', '-x', '"a"', 'a\n%%x'].map(isWord), Array(5).fill(false));
});
