/** Shows the text of `%%agent` cells as prose: Markdown, with options and `{{…}}` as code. */

import { highlightingFor } from '@codemirror/language';
import { Prec, type EditorState, type Extension, type Range } from '@codemirror/state';
import {
  Decoration,
  EditorView,
  ViewPlugin,
  type DecorationSet,
  type PluginValue,
  type ViewUpdate
} from '@codemirror/view';
import {
  EditorExtensionRegistry,
  type EditorModel,
  type IEditorExtensionRegistry,
  type IEditorLanguageRegistry
} from '@jupyterlab/codemirror';
import { highlightTree, tags, type Parser, type Tag } from '@lezer/highlight';

import type { Link } from '../kernel/link.js';
import { endsInMention, codePieces, isPrompt } from './cell_text.js';
import { takeFiles } from './pasting.js';

/** Markdown without formulas: a prompt speaks of $5 and $6. */
const PROSE = 'text/x-markdown';
const PYTHON = 'text/x-ipython';
const COLOURS: { [kind: string]: readonly Tag[] } = {
  magic: [tags.keyword],
  option: [tags.operator],
  value: [tags.string]
};
/** Characters of a cell beyond which its code is not looked for at each key. */
const MOST = 200_000;

/** What the language of a cell is where it is not an agent's. */
const usual = new WeakMap<EditorModel, string>();

/**
 * The extension for the editor of one code cell.
 *
 * @param languages - for the colours of Python in `{{…}}`.
 * @param mention - called when the person types one: after `@`, or `/` at the beginning.
 */
function proseIn(
  model: EditorModel,
  languages: IEditorLanguageRegistry,
  mention: () => void
): Extension {
  return [
    // The highest are drawn innermost: their colours count, where Markdown sees a link.
    Prec.highest(
      ViewPlugin.define(view => new Prose(view, model, languages), {
        decorations: prose => prose.decorations
      })
    ),
    // A class of CodeMirror's own: with it lines are wrapped, and measured so.
    EditorView.contentAttributes.of(view =>
      isAgents(view.state) ? { class: 'cm-lineWrapping am-prompt' } : null
    ),
    // Each line of a prompt runs as its own words do.
    EditorView.perLineTextDirection.compute(['doc'], isAgents),
    EditorView.updateListener.of(update => {
      if (update.transactions.some(each => each.isUserEvent('input.type'))) {
        const { state } = update;
        if (endsInMention(state.doc.toString(), state.selection.main.head)) {
          mention();
        }
      }
    })
  ];
}

/** The colours of one editor, and the language of its cell. */
class Prose implements PluginValue {
  decorations: DecorationSet;

  constructor(
    private _view: EditorView,
    private _model: EditorModel,
    languages: IEditorLanguageRegistry
  ) {
    this.decorations = decorate(_view.state, this._python);
    _model.mimeTypeChanged.connect(this._choose, this);
    this._choose();
    void loadPython(languages).then(parser => {
      this._python = parser;
      this._choose();
    });
  }

  update(update: ViewUpdate): void {
    if (update.docChanged || this._isStale) {
      this._isStale = false;
      this.decorations = decorate(update.state, this._python);
    }
    if (isAgents(update.startState) !== isAgents(update.state)) {
      this._choose();
    }
  }

  destroy(): void {
    this._isGone = true;
    this._model.mimeTypeChanged.disconnect(this._choose, this);
  }

  /** Give the cell its language, after the update in which this may be. */
  private _choose(): void {
    void Promise.resolve().then(() => {
      if (this._isGone) {
        return;
      }
      const model = this._model;
      if (model.mimeType !== PROSE) {
        usual.set(model, model.mimeType);
      }
      const wanted = isAgents(this._view.state) ? PROSE : (usual.get(model) ?? PYTHON);
      this._isStale = true;
      if (model.mimeType !== wanted) {
        model.mimeType = wanted;
      }
      this._view.dispatch({});
    });
  }

  private _isGone = false;
  private _isStale = false;
  private _python: Parser | null = null;
}

function isAgents(state: EditorState): boolean {
  return isPrompt(state.doc.sliceString(0, 2_000));
}

function decorate(state: EditorState, python: Parser | null): DecorationSet {
  const marks: Range<Decoration>[] = [];
  const mark = (from: number, to: number, name: string): void => {
    if (name !== '' && from < to) {
      marks.push(Decoration.mark({ class: name }).range(from, to));
    }
  };
  const style = (found: readonly Tag[]): string | null => highlightingFor(state, found);
  const source = state.doc.length > MOST ? '' : state.doc.toString();
  for (const { from, to, kind } of codePieces(source)) {
    if (kind !== 'expression') {
      mark(from, to, `am-prompt-code ${style(COLOURS[kind]!) ?? ''}`);
      continue;
    }
    mark(from, to, 'am-prompt-code am-prompt-expression');
    if (python !== null) {
      const tree = python.parse(source.slice(from + 2, to - 2));
      highlightTree(tree, { style }, (start, end, name) => {
        mark(from + 2 + start, from + 2 + end, name);
      });
    }
  }
  return Decoration.set(marks, true);
}

async function loadPython(languages: IEditorLanguageRegistry): Promise<Parser | null> {
  const found = await languages.getLanguage(PYTHON);
  return found?.support?.language.parser ?? null;
}

/** Have the editors of all code cells show prompts so. */
export function showProse(
  registry: IEditorExtensionRegistry,
  languages: IEditorLanguageRegistry,
  mention: () => void,
  linkOf: (model: EditorModel) => Link | undefined
): void {
  registry.addExtension({
    name: 'agent-magics:prompts',
    factory: ({ model }) =>
      EditorExtensionRegistry.createImmutableExtension(
        model.type === 'code'
          ? [proseIn(model, languages, mention), takeFiles(() => linkOf(model))]
          : []
      )
  });
}
