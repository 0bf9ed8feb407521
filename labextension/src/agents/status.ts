/** The agents at work, as an item of JupyterLab's status bar. */

import { Widget } from '@lumino/widgets';

import { summary, type Work } from '../kernel/work.js';
import { trans } from '../text/translation.js';

/** A button that says what agents do; a press goes to what waits for the person. */
export class StatusItem extends Widget {
  constructor(work: Work, go: () => void) {
    super({ node: document.createElement('button') });
    this.addClass('am-status-item');
    this.node.setAttribute('aria-live', 'polite');
    this.node.title = trans.__('Go to the next question, or to the agent at work');
    this.node.addEventListener('click', go);
    const draw = (): void => {
      const words = summary(work);
      if (this.node.textContent !== words) {
        this.node.textContent = words;
      }
      this.node.classList.toggle('am-waiting', work.questions > 0);
    };
    work.changed.connect(draw);
    draw();
  }
}
