/** The picture of agents in JupyterLab's side bar and lists. */

import { LabIcon } from '@jupyterlab/ui-components';

export const agentIcon = new LabIcon({
  name: 'agent-magics:agent',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M8.6 5V3.2a1.2 1.2 0 1 0-1.2 0V5H4a2 2 0 0 0-2 2v4.5
    a2 2 0 0 0 2 2h8a2 2 0 0 0 2-2V7a2 2 0 0 0-2-2zM5.6 7.8a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6z
    m4.8 0a1.3 1.3 0 1 1 0 2.6 1.3 1.3 0 0 1 0-2.6z"/>
</svg>`
});
