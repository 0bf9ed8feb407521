/** Tells a person who looks elsewhere that a question waits, or that a long run has ended. */

import { Notification as LabNotification } from '@jupyterlab/apputils';

import { keyOf, news, type Run, type Work } from '../kernel/work.js';
import { trans } from '../text/translation.js';

/** Milliseconds that the page is out of sight before the system's notifications are used. */
const AWAY = 30_000;
const COUNT = /^\(\d+\) /;

/**
 * Follow the runs of a page.
 *
 * @param go - shows the cell of a run.
 */
export function callAttention(work: Work, go: (run: Run) => void): void {
  const shown = new Map<string, string>();
  const away = new Away();
  work.changed.connect((_, change) => {
    countInTitle(work.questions);
    const { run } = change;
    const key = keyOf(run);
    const words = news(change);
    if (change.ended || words !== '' || (run.questions === 0 && change.before > 0)) {
      LabNotification.dismiss(shown.get(key) ?? '');
      shown.delete(key);
    }
    if (words === '') {
      return;
    }
    const waiting = (): boolean =>
      change.ended ||
      work.runs.some(each => keyOf(each) === key && each.questions > 0);
    away.whenLong(() => waiting() && tellSystem(words, key, () => go(run)));
    if (!run.panel.isVisible) {
      const actions = [{ label: trans.__('Show'), callback: (): void => go(run) }];
      const options = { actions, autoClose: change.ended ? 10_000 : (false as const) };
      shown.set(key, LabNotification.emit(words, change.ended ? 'success' : 'info', options));
    }
  });
  new MutationObserver(() => countInTitle(work.questions)).observe(
    document.querySelector('title') ?? document.head,
    { childList: true }
  );
}

/** Put the number of open questions in front of the tab's title. */
function countInTitle(questions: number): void {
  const title = document.title.replace(COUNT, '');
  const wanted = questions > 0 ? `(${questions}) ${title}` : title;
  if (document.title !== wanted) {
    document.title = wanted;
  }
}

/** Knows since when the page is out of sight. */
class Away {
  constructor() {
    document.addEventListener('visibilitychange', () => {
      this._since = document.hidden ? Date.now() : null;
    });
  }

  /** Act once the page has been out of sight for long; never where the person is back before. */
  whenLong(act: () => void): void {
    const since = this._since;
    if (since !== null) {
      setTimeout(() => this._since === since && act(), Math.max(0, since + AWAY - Date.now()));
    }
  }

  private _since: number | null = document.hidden ? Date.now() : null;
}

function tellSystem(words: string, tag: string, go: () => void): void {
  if (!('Notification' in window) || Notification.permission !== 'granted') {
    return;
  }
  const shown = new Notification('agent-magics', { body: words, tag });
  shown.onclick = (): void => {
    window.focus();
    go();
    shown.close();
  };
}
