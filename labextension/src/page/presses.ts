/** Lets a press on a button of ours count where output that is drawn above moves the button before the release. */

const OURS = 'button[class^="agm-"], button[class^="am-"]';

/** Have each button of ours hold the pointer that presses it, in the whole page. */
export function holdPresses(): void {
  let pressedAt: DOMRect | null = null;
  document.addEventListener(
    'pointerdown',
    ({ isTrusted, pointerId, target }) => {
      const button = isTrusted && target instanceof Element ? target.closest(OURS) : null;
      button?.setPointerCapture(pointerId); // so that the click comes to it
      pressedAt = button?.getBoundingClientRect() ?? null;
    },
    true
  );
  document.addEventListener(
    'click',
    event => {
      const button = event.target instanceof Element ? event.target.closest(OURS) : null;
      // A pointer that was moved away takes the press back, as on any button; the keyboard has none.
      const places = [pressedAt, button?.getBoundingClientRect()];
      if (button && pressedAt && event.detail > 0 && !places.some(place => place && contains(place, event))) {
        event.preventDefault();
        event.stopPropagation();
      }
      pressedAt = null;
    },
    true
  );
}

function contains({ bottom, left, right, top }: DOMRect, { clientX, clientY }: MouseEvent): boolean {
  return left <= clientX && clientX <= right && top <= clientY && clientY <= bottom;
}
