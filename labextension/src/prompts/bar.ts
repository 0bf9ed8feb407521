/** The bar of the active agent cell: model, policy and agent, as its first line says them. */

import type { NotebookPanel } from '@jupyterlab/notebook';

import type { Link } from '../kernel/link.js';
import { asOneStep } from '../notebook/document.js';
import { make } from '../page/elements.js';
import { smallestChange } from '../text/change.js';
import { trans } from '../text/translation.js';
import { isPrompt } from './cell_text.js';
import { isWord, optionIn, withOption, type OptionName } from './first_line.js';

type Cell = NonNullable<NotebookPanel['content']['activeCell']>;

interface Choice {
  name: OptionName;
  select: HTMLSelectElement;
  /** What stands there where the line says nothing. */
  unsaid: string;
  values: string[];
}

/** The bar of one notebook, which moves to the active cell; nothing of it is in the document. */
export class Bar {
  /**
   * @param _isOn - whether the person wants it.
   * @param policies - what is offered until the kernel answers.
   */
  constructor(
    private _panel: NotebookPanel,
    private _linkOf: () => Link | undefined,
    private _isOn: () => boolean,
    policies: string[]
  ) {
    this._choices = [
      this._make('model', trans.__('Model'), trans.__('Model as set')),
      this._make('approval', trans.__('Policy'), trans.__('Policy as set'), policies),
      this._make('name', trans.__('Agent'), trans.__('Agent as set'))
    ];
    this._node.setAttribute('role', 'group');
    this._node.setAttribute('aria-label', trans.__('Options of the agent cell'));
    this._node.append(...this._choices.map(({ select }) => select));
    this._node.addEventListener('focusin', ({ relatedTarget }) => {
      if (!this._node.contains(relatedTarget as Node | null)) {
        void this._learn();
      }
    });
    _panel.content.activeCellChanged.connect(this._follow, this);
    void _panel.context.ready.then(() => this._follow());
  }

  /** Show what the first line of the active cell says, or nothing where it is no agent's. */
  update(): void {
    if (this._panel.isDisposed) {
      return;
    }
    const isOn = this._isOn() && !this._panel.context.model.readOnly;
    // All agent cells keep a place free for it, so that nothing moves when it comes.
    this._panel.node.classList.toggle('am-bars', isOn);
    const shared = this._cell?.model.sharedModel;
    const source = shared?.cell_type === 'code' ? shared.getSource() : '';
    const area = this._cell?.node.querySelector('.jp-Cell-inputArea');
    if (!isOn || !area || shared?.getMetadata('editable') === false || !isPrompt(source)) {
      this._remove();
      return;
    }
    this._choices.forEach(choice => show(choice, optionIn(source, choice.name)));
    if (this._node.parentNode !== area) {
      area.insertBefore(this._node, area.querySelector('.jp-InputArea-editor'));
      if (!this._hasLearned) {
        void this._learn();
      }
    }
  }

  private _make(name: OptionName, label: string, unsaid: string, values: string[] = []): Choice {
    const select = make('select', 'am-bar-choice');
    select.setAttribute('aria-label', label);
    select.title = label;
    select.addEventListener('change', () => this._write(name, select.value || null));
    return { name, select, unsaid, values };
  }

  /** Follow the person to another cell, whose editor may be made later. */
  private _follow(): void {
    this._cell?.model?.sharedModel.changed.disconnect(this._onChange, this);
    const cell = this._panel.isDisposed ? null : this._panel.content.activeCell;
    this._cell = cell;
    cell?.model.sharedModel.changed.connect(this._onChange, this);
    this.update();
    void cell?.ready.then(() => cell === this._cell && this.update());
  }

  private _onChange(_: unknown, change: { sourceChange?: unknown; metadataChange?: unknown }): void {
    if (change.sourceChange || change.metadataChange) {
      this.update();
    }
  }

  /** Rewrite one option: one step of the cell's undo. */
  private _write(name: OptionName, value: string | null): void {
    const shared = this._cell?.model.sharedModel;
    if (shared) {
      const before = shared.getSource();
      const change = smallestChange(before, withOption(before, name, value));
      asOneStep(shared.undoManager, () =>
        shared.updateSource(change.start, change.end, change.value)
      );
    }
  }

  /** Ask the kernel what it would complete after each option. */
  private async _learn(): Promise<void> {
    const link = this._linkOf();
    for (const choice of this._choices) {
      const code = `%%agent --${choice.name} `;
      const answer = await link?.ask('complete', { code, offset: code.length });
      if (answer && answer.refused === undefined) {
        this._hasLearned = true;
        choice.values = (answer.found as [string, string][]).map(([text]) => text).filter(isWord);
      }
    }
    this.update();
  }

  private _remove(): void {
    const hadFocus = this._node.contains(document.activeElement);
    this._node.remove();
    if (hadFocus) {
      this._panel.content.activate();
    }
  }

  private _node = make('div', 'am-bar');
  private _choices: Choice[];
  private _cell: Cell | null = null;
  private _hasLearned = false;
}

/** Options are made anew only where they are others: their list may be open. */
function show({ select, unsaid, values }: Choice, said: string | null): void {
  const offered = said === null || values.includes(said) ? values : [said, ...values];
  const texts = [unsaid, ...offered];
  if (texts.join('\n') !== [...select.options].map(({ text }) => text).join('\n')) {
    select.replaceChildren(...texts.map((text, place) => new Option(text, place ? text : '')));
  }
  select.value = said ?? '';
}
