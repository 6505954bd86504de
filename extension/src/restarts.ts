/** How often a server that dies is started again: a few times in a while, so that one that cannot run is left alone. */
export class Restarts {
  private readonly deaths: number[] = [];

  /**
   * @param most restarts within the window.
   * @param windowMs length of the window, in milliseconds.
   */
  constructor(
    private readonly most = 4,
    private readonly windowMs = 180_000,
  ) {}

  /** Note that the server died; says whether to start it again, and whether the user is to be told of it. */
  died(now: number): { restart: boolean; tell: boolean } {
    const recent = this.deaths.filter((at) => now - at < this.windowMs);
    const restart = recent.length < this.most;
    const tell = recent.length === 0 || !restart;
    this.deaths.splice(0, this.deaths.length, ...recent, now);
    return { restart, tell };
  }

  /** Begin anew, as after a restart that the user asked for. */
  forget(): void {
    this.deaths.length = 0;
  }
}
