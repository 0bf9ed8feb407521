/** Coloured terminal output as pieces of text, each with its look; everything else is left out. */

import { stripAnsi } from '../text/plain.js';

/** A colour of the terminal's own sixteen, or one as CSS. */
export type Colour = number | string | null;

export interface Look {
  fg: Colour;
  bg: Colour;
  on: readonly string[];
}

export interface Run {
  text: string;
  look: Look;
}

const PLAIN: Look = { fg: null, bg: null, on: [] };
// Colours and the like (ECMA-48: SGR), the only sequences that are kept.
const SEQUENCE = /\x1b\[([0-9;]*)m/;
const SWITCHES: Record<number, string> = { 1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline' };
const SWITCHED_OFF: Record<number, string[]> = {
  22: ['bold', 'dim'],
  23: ['italic'],
  24: ['underline']
};

/** The pieces of `text` in the order they stand, none of them empty. */
export function colouredRuns(text: string): Run[] {
  const runs: Run[] = [];
  let look = PLAIN;
  // Pieces between sequences stand at even places, the codes of sequences at odd ones.
  text.split(SEQUENCE).forEach((piece, place) => {
    if (place % 2) {
      look = changeLook(look, piece);
    } else {
      const clean = stripAnsi(piece);
      if (clean !== '') {
        runs.push({ text: clean, look });
      }
    }
  });
  return runs;
}

/** The look after one sequence such as "1;31". */
function changeLook(look: Look, codes: string): Look {
  const numbers = codes.split(';').map(Number);
  let { fg, bg, on } = look;
  while (numbers.length > 0) {
    const code = numbers.shift()!;
    if (code === 0) {
      ({ fg, bg, on } = PLAIN);
    } else if (code in SWITCHES) {
      const name = SWITCHES[code]!;
      on = [...on.filter(other => other !== name), name];
    } else if (code in SWITCHED_OFF) {
      on = on.filter(name => !SWITCHED_OFF[code]!.includes(name));
    } else if (code === 38) {
      fg = extendedColour(numbers);
    } else if (code === 48) {
      bg = extendedColour(numbers);
    } else if (code === 39) {
      fg = null;
    } else if (code === 49) {
      bg = null;
    } else {
      fg = ownColour(code, 30, 90) ?? fg;
      bg = ownColour(code, 40, 100) ?? bg;
    }
  }
  return { fg, bg, on };
}

/** The terminal's own sixteen, as JupyterLab has them. */
const OWN = (
  '#3e424d #e75c58 #00a250 #b27d12 #208ffb #d160c4 #60c6c8 #c5c1b4 ' +
  '#282c36 #b22b31 #007427 #ba7800 #0065ca #a03196 #258f8f #a1a6b2'
).split(' ');
const GREYS: Colour[] = [0, 7, 8, 15];

/** Classes and colours as CSS, "" for none; what could be too faint is drawn nearer to the text's colour. */
export function styleOf({ fg, bg, on }: Look): { names: string[]; colour: string; background: string } {
  const css = (colour: Colour): string => (typeof colour === 'number' ? OWN[colour]! : (colour ?? ''));
  const names = on.map(name => `am-${name}`);
  if (fg !== null) {
    names.push(typeof fg === 'string' || GREYS.includes(fg) ? 'am-fg-faint' : 'am-fg');
  }
  return { names, colour: css(fg), background: css(bg) };
}

/** One of the sixteen, whose dark half begins at code `dark` and whose bright one at `bright`. */
function ownColour(code: number, dark: number, bright: number): number | null {
  if (code >= dark && code <= dark + 7) {
    return code - dark;
  }
  return code >= bright && code <= bright + 7 ? code - bright + 8 : null;
}

/** A colour by number (5;n) or by its parts (2;r;g;b); takes its numbers from the front. */
function extendedColour(numbers: number[]): Colour {
  const kind = numbers.shift();
  if (kind === 2) {
    return cssColour(numbers.splice(0, 3));
  }
  const number = kind === 5 ? numbers.shift() : undefined;
  if (number === undefined || !(number >= 0 && number <= 255)) {
    return null;
  }
  if (number < 16) {
    return number;
  }
  if (number >= 232) {
    const grey = 8 + 10 * (number - 232);
    return cssColour([grey, grey, grey]);
  }
  const cube = number - 16;
  const steps = [Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6];
  return cssColour(steps.map(step => (step ? 55 + 40 * step : 0)));
}

function cssColour(parts: number[]): string | null {
  const valid = parts.length === 3 && parts.every(part => part >= 0 && part <= 255);
  return valid ? `rgb(${parts.join(', ')})` : null;
}
