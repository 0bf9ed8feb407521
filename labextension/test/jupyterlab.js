// Stands in for the packages that JupyterLab brings with it, for tests of what imports them.

import { register } from 'node:module';

/** What was notified and not dismissed, by its id. */
export const notified = new Map();

globalThis.jupyterlab = {
  LabIcon: class {},
  Notification: {
    emit: words => {
      const id = `${notified.size}-${Math.random()}`;
      notified.set(id, words);
      return id;
    },
    dismiss: id => notified.delete(id)
  }
};

const whole = 'export const { LabIcon, Notification } = globalThis.jupyterlab;';
const resolver = `
  const url = ${JSON.stringify(`data:text/javascript,${encodeURIComponent(whole)}`)};
  export const resolve = (name, context, next) =>
    name.startsWith('@jupyterlab/') ? { url, shortCircuit: true } : next(name, context);
`;
register(`data:text/javascript,${encodeURIComponent(resolver)}`);
