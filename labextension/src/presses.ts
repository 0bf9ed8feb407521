/** Has a press count though its button moves before the release: outputs are drawn above it all the time. */

const OURS = 'button[class^="agm-"], button[class^="am-"]';

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
      if (button && pressedAt && event.detail > 0 && !places.some(place => place && holds(place, event))) {
        event.preventDefault();
        event.stopPropagation();
      }
      pressedAt = null;
    },
    true
  );
}

function holds({ bottom, left, right, top }: DOMRect, { clientX, clientY }: MouseEvent): boolean {
  return left <= clientX && clientX <= right && top <= clientY && clientY <= bottom;
}
