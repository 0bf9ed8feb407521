/** Tells JupyterLab who draws `application/vnd.agent-magics.item+json`. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { type Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { drawItem } from './draw.js';
import { MIME_TYPE, parseItem } from './items.js';

class ItemRenderer extends Widget implements IRenderMime.IRenderer {
  constructor(options: IRenderMime.IRendererOptions) {
    super();
    this._options = options;
    this.addClass('am-item');
  }

  /** Draw the model; called again for each update of the same output. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const drawing = ++this._drawings;
    const { data } = model;
    const item = await drawItem(parseItem(data[MIME_TYPE]), this._options, '0', data);
    // Markdown is drawn asynchronously: an older drawing may come home after a newer one.
    if (drawing === this._drawings) {
      this._keepFolds(item);
      const focused = this._focusable().indexOf(document.activeElement as HTMLElement);
      this.node.replaceChildren(item);
      if (focused >= 0) {
        this._focusable()[focused]?.focus({ preventScroll: true });
      }
      this._typeset();
    }
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._typeset();
  }

  /** What the person folded or unfolded stays so when the item is drawn again. */
  private _keepFolds(item: HTMLElement): void {
    const folds = (root: HTMLElement): HTMLDetailsElement[] => [
      ...root.querySelectorAll<HTMLDetailsElement>('details[data-key]'),
      ...(root instanceof HTMLDetailsElement ? [root] : [])
    ];
    const before = new Map(folds(this.node).map(fold => [fold.dataset.key, fold]));
    for (const fold of folds(item)) {
      const old = before.get(fold.dataset.key);
      if (old && String(old.open) !== old.dataset.initial) {
        fold.open = old.open;
      }
    }
  }

  /** What the keyboard reaches; the same places after an update. */
  private _focusable(): HTMLElement[] {
    return [...this.node.querySelectorAll<HTMLElement>('summary, button')];
  }

  /** Formulas can be measured, and so set, only while they are in the page. */
  private _typeset(): void {
    if (this.isAttached && this._options.latexTypesetter) {
      for (const formula of this.node.querySelectorAll<HTMLElement>('.am-math')) {
        formula.className = '';
        void this._options.latexTypesetter.typeset(formula);
      }
    }
  }

  private _options: IRenderMime.IRendererOptions;
  private _drawings = 0;
}

const extension: IRenderMime.IExtension = {
  id: 'agent-magics:item',
  description: 'Draws the saved turns of agent-magics.',
  rendererFactory: {
    // Safe: foreign text is sanitised or set as text, in trusted notebooks as in others.
    safe: true,
    mimeTypes: [MIME_TYPE],
    createRenderer: options => new ItemRenderer(options)
  },
  rank: 0,
  dataType: 'json'
};

export default extension;
