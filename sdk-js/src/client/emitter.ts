export interface Emitter<Events> {
  on<E extends keyof Events>(event: E, fn: (e: Events[E]) => void): () => void;
  emit<E extends keyof Events>(event: E, e: Events[E]): void;
}

export function emitter<Events>(): Emitter<Events> {
  const listeners = new Map<keyof Events, Set<(e: never) => void>>();
  return {
    on(event, fn) {
      const set = listeners.get(event) ?? new Set();
      listeners.set(event, set.add(fn));
      return () => void set.delete(fn);
    },
    emit(event, e) {
      for (const fn of listeners.get(event) ?? []) {
        try {
          fn(e as never);
        } catch (thrown) {
          queueMicrotask(() => {
            throw thrown; // the listener's own fault: it is told, and stops nothing here
          });
        }
      }
    },
  };
}
