/** The words of the page in the person's language, once JupyterLab has given us its translator. */

import type { TranslationBundle } from '@jupyterlab/translation';

function fill(text: string, values: (string | number)[]): string {
  return text.replace(/%(\d+)/g, (_, place) => String(values[Number(place) - 1] ?? ''));
}

let bundle: TranslationBundle = {
  __: (text, ...values) => fill(text, values),
  _n: (one, many, count, ...values) => fill(count === 1 ? one : many, [count, ...values])
};

/** JupyterLab's bundle for this extension; English until then. In `_n` the count itself is %1. */
export const trans: TranslationBundle = {
  __: (text, ...values) => bundle.__(text, ...values),
  _n: (one, many, count, ...values) => bundle._n(one, many, count, ...values)
};

export function translate(by: TranslationBundle): void {
  bundle = by;
}
