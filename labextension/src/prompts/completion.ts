/** Completes options, `@variables`, `@files` and `/prompts` in agent cells; the kernel knows them. */

import type {
  CompletionContext,
  CompletionProvider,
  CompletionReply
} from '@jupyterlab/completer';

import type { Link } from '../kernel/link.js';
import { isPrompt } from './cell_text.js';

/** JupyterLab would break what a variable is over several lines, on top of each other. */
const NO_BREAK = '\u00a0';

type Found = [text: string, kind: string][];

/** Asks the kernel by its link, which reaches it while it is busy too. */
export class PromptCompleter implements CompletionProvider {
  readonly identifier = 'agent-magics:prompts';
  /** Above those of JupyterLab, so that these come first. */
  readonly rank = 700;
  readonly renderer = null;

  constructor(private _linkOf: (widget: object) => Link | undefined) {}

  async isApplicable({ editor }: CompletionContext): Promise<boolean> {
    return isPrompt(editor?.model.sharedModel.getSource() ?? '');
  }

  async fetch(
    { text, offset }: { text: string; offset: number },
    context: CompletionContext
  ): Promise<CompletionReply> {
    const link = this._linkOf(context.widget);
    const answer = link && (await link.ask('complete', { code: text, offset }));
    if (!answer || answer.refused !== undefined) {
      return { start: offset, end: offset, items: [] };
    }
    const { start, end, found } = answer as unknown as { start: number; end: number; found: Found };
    const begun = [...text].slice(start, end).join('');
    const items = found.map(([insertText, kind]) => ({
      label: labelOf(insertText, begun),
      insertText,
      type: kind.replaceAll(' ', NO_BREAK)
    }));
    return { start, end, items };
  }
}

/**
 * What the list shows. JupyterLab filters it by what is typed (`@sal`), and at first by what all
 * insertions have in common (`{{sal`): `@{{sales}}` fits both.
 */
export function labelOf(text: string, begun: string): string {
  return begun.startsWith('@') ? `@${text}` : text;
}
