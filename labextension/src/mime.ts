/** Tells JupyterLab who draws `application/vnd.agent-magics.item+json`. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { type Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import { CHANGES } from './render/changes.js';
import { drawItem, unfold } from './render/draw.js';
import { MIME_TYPE, parseItem } from './render/items.js';

/** What the keyboard reaches; of each kind the same ones in the same order after an update. */
const REACHED = ['summary', 'button', 'a[href]', '[tabindex="0"]'];

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
    await this._keepFolds(item);
    // Markdown is drawn asynchronously: an older drawing may come home after a newer one.
    if (drawing === this._drawings) {
      const focused = document.activeElement;
      const before = REACHED.map(kind => this._all(kind).map(old => ({ old, top: old.scrollTop })));
      this.node.replaceChildren(item);
      REACHED.forEach((kind, number) =>
        this._all(kind).forEach((element, place) => {
          const { old = null, top = 0 } = before[number]![place] ?? {};
          if (old !== null && old === focused) {
            element.focus({ preventScroll: true });
          }
          if (top > 0) {
            element.scrollTop = top;
          }
        })
      );
      this._enterPage();
    }
  }

  dispose(): void {
    this._seen?.disconnect();
    super.dispose();
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._enterPage();
  }

  /** What the person folded or unfolded stays so when the item is drawn again. */
  private async _keepFolds(item: HTMLElement): Promise<void> {
    const before = new Map(foldsIn(this.node).map(fold => [fold.dataset.key, fold]));
    const keep = (fold: HTMLDetailsElement): void => {
      const old = before.get(fold.dataset.key);
      if (old && String(old.open) !== old.dataset.initial) {
        fold.open = old.open;
      }
    };
    for (const fold of foldsIn(item)) {
      keep(fold);
      await unfold(fold); // a group's calls are drawn only now, if it is open
      foldsIn(fold).forEach(keep);
    }
  }

  private _all(selector: string): HTMLElement[] {
    return [...this.node.querySelectorAll<HTMLElement>(selector)];
  }

  /** Do what is possible only in the page: formulas are measured to be set, once they are seen; changes are reviewed. */
  private _enterPage(): void {
    if (!this.isAttached) {
      return;
    }
    this._seen?.disconnect();
    this._seen = null;
    const formulas = this.node.querySelectorAll('.am-math');
    if (formulas.length > 0 && this._options.latexTypesetter) {
      // MathJax measures each in the page, which takes seconds for a thousand.
      // The margin counts only around what scrolls.
      const root = this.node.closest('.jp-WindowedPanel-outer');
      this._seen = new IntersectionObserver(entries => this._typeset(entries), { root, rootMargin: '100%' });
      formulas.forEach(formula => this._seen?.observe(formula));
    }
    for (const changes of this.node.querySelectorAll('.am-changes')) {
      changes.dispatchEvent(new CustomEvent(CHANGES, { bubbles: true }));
    }
  }

  /** Set the formulas that a person sees, or will when they scroll on. */
  private _typeset(entries: IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) {
        this._seen?.unobserve(target);
        target.className = '';
        void this._options.latexTypesetter?.typeset(target as HTMLElement);
      }
    }
  }

  private _seen: IntersectionObserver | null = null;
  private _options: IRenderMime.IRendererOptions;
  private _drawings = 0;
}

function foldsIn(root: HTMLElement): HTMLDetailsElement[] {
  const inside = [...root.querySelectorAll<HTMLDetailsElement>('details[data-key]')];
  return root instanceof HTMLDetailsElement ? [root, ...inside] : inside;
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
