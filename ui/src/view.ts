/** One of the page's views. The address after `#` is its only state: `update` is called with each change of it. */
export interface View {
  readonly root: HTMLElement;
  update(parameters: URLSearchParams): void;
  destroy(): void;
}
