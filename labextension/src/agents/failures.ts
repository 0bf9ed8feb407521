/** What an agent is asked about a cell that failed. */

import type { Output } from '@jupyterlab/notebook';

import { stripAnsi } from '../text/plain.js';

/** Of a long error the last lines tell the most. */
const MOST_LINES = 40;
const MOST_VARIABLES = 10;

/**
 * Write the prompt. Nothing of the cell or of its error is evaluated in it, only the variables are.
 *
 * @param variables - the names of variables that there are; those that the cell uses are shown.
 */
export function makePrompt(source: string, error: Output, variables: string[]): string {
  const written = [error.traceback ?? []].flat().join('\n'); // a saved notebook may hold anything
  const lines = stripAnsi(written).split('\n');
  const traceback = lines.slice(-MOST_LINES).join('\n');
  const words = [
    'This cell failed. Find out why and tell me how to fix it; look at the variables that it uses.',
    fence(source, 'python'),
    fence(traceback, '')
  ];
  const names = new Set(source.match(/[\p{L}_][\p{L}\p{N}_]*/gu));
  const used = variables.filter(name => names.has(name)).slice(0, MOST_VARIABLES);
  const shown = used.map(name => `- \`${name}\`: {{${name}}}`);
  const values = shown.length > 0 ? `\n\nThe variables:\n\n${shown.join('\n')}` : '';
  return `%%agent\n${words.join('\n\n').replaceAll('{{', '\\{{')}${values}\n`;
}

/** A code block whose fence is longer than any in the text. */
function fence(text: string, language: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([ticks]) => ticks.length));
  const ticks = '`'.repeat(longest + 1);
  // A cell's lines end in newlines: its editor counts "\r\n" as one character.
  return `${ticks}${language}\n${text.trimEnd().replace(/\r\n?/g, '\n')}\n${ticks}`;
}
